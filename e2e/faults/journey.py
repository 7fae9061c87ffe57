"""The steps of a volume's whole life on one node, in order, for a Survivor to run one by one."""

import subprocess

from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.volume import MIB, SIZE, Volume, from_snapshot, from_volume

GROWN = SIZE + 64 * MIB
# Enough for a few writes of each thread; every block is looked at once more at the end.
BLOCKS, THREADS = 256, 4


class Journey:
    """`copies`: the pool cannot reflink, so that snapshots are taken of volumes that are not in use."""

    def __init__(self, survivor, name, *, block=False, copies=False):
        self.survivor, self.rig, self.name = survivor, survivor.rig, name
        self.copies = copies
        self.node = self.rig.nodes[0]
        self.volume = Volume(self.rig, self.node, name, block=block)
        self.clones, self.snapshots = [], []
        self.checker = None

    def go(self):
        """Every step, each repeated until it succeeds; then nothing of the volume may be left."""
        volume, step = self.volume, self.survivor.step
        step("create", volume.create)
        if self.copies:
            self.snapshot_and_clone()
        step("controller publish", volume.controller_publish)
        step("stage", volume.stage)
        step("publish", volume.publish)
        self.start_writing()
        step("controller expand", lambda: volume.controller_expand(GROWN))
        self.step_on_node("node expand", volume.node_expand)
        if not self.copies:
            self.snapshot_and_clone()
        self.stop_writing()
        step("unpublish", volume.unpublish)
        step("unstage", volume.unstage)
        step("controller unpublish", volume.controller_unpublish)
        self.stage_without_controller()
        self.fence_and_unfence()
        step("delete", volume.delete)

    def snapshot_and_clone(self):
        step = self.survivor.step
        step("snapshot", lambda: self.snapshots.append(self.volume.snapshot(f"{self.name}-snapshot")))
        self.wait_until_copied()
        for suffix, source in (("restored", from_snapshot(self.snapshots[-1])), ("cloned", from_volume(self.volume.id))):
            if suffix == "cloned" and self.volume.publish_context and self.copies:
                continue
            clone = Volume(self.rig, self.node, f"{self.name}-{suffix}", block=self.volume.block, source=source,
                           size=max(GROWN, self.volume.size))
            step(f"create {suffix}", clone.create)
            step(f"delete {suffix}", clone.delete)
        step("delete snapshot",
             lambda: self.rig.controller.client.DeleteSnapshot(snapshot_id=self.snapshots[-1]))

    def wait_until_copied(self):
        def ready():
            entries = self.rig.controller.client.ListSnapshots(snapshot_id=self.snapshots[-1]).entries
            return entries and entries[0].snapshot.ready_to_use
        wait_until(ready, 30, "the snapshot is ready")

    def stage_without_controller(self):
        """The node asks for the grant itself."""
        self.survivor.step("stage with its own grant", self.volume.stage)
        self.survivor.step("unstage with its own grant", self.volume.unstage)

    def fence_and_unfence(self):
        step, node_id = self.survivor.step, self.node.id
        step("controller publish to fence", self.volume.controller_publish)
        step("fence", lambda: self.rig.fence(node_id))
        step("unfence", lambda: self.rig.unfence(node_id))
        step("controller unpublish after the fence", self.volume.controller_unpublish)

    # Writing, and going on after the holder, and so the device, has died under it.

    def start_writing(self):
        path = self.volume.path()
        if not self.volume.block and not path.exists():
            subprocess.run(["fallocate", "-l", str(BLOCKS * 4096), path], check=True)
            subprocess.run(["sync", path], check=True)
        if self.checker is None:
            self.checker = BlockChecker(self.volume, threads=THREADS, blocks=BLOCKS, flush_every=16)
        self.holder_deaths = self.survivor.holder_deaths
        self.checker.start()

    def stop_writing(self):
        code, counters = self.checker.stop()
        if self.survivor.holder_deaths > self.holder_deaths:
            assert code in (0, 3), f"bad data: {counters}\n{self.checker.daemon.tail()}"
            self.stage_again()
        else:
            assert code == 0, f"{counters}\n{self.checker.daemon.tail()}"
        self.checker.verify()

    def stage_again(self):
        """What an orchestrator does with a volume whose device is dead: down and up again."""
        volume, step = self.volume, self.survivor.step
        for name, call in (("unpublish a dead device", volume.unpublish), ("unstage a dead device", volume.unstage),
                           ("stage again", volume.stage), ("publish again", volume.publish)):
            step(name, call)
        self.holder_deaths = self.survivor.holder_deaths

    def step_on_node(self, name, call):
        """A step that needs the device: if the holder dies in it, or has died before, the volume is staged anew."""
        def with_device():
            if self.survivor.holder_deaths > self.holder_deaths:
                code, counters = self.checker.stop()
                assert code in (0, 3), f"bad data: {counters}"
                self.stage_again()
                self.checker.verify()
                self.start_writing()
            call()
        self.survivor.step(name, with_device)
