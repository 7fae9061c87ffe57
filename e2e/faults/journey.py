"""The steps of a volume's whole life on one node, in order, for a Survivor to run one by one."""

import grpc

from harness import store
from harness.checker import GOOD, IO_ERROR, BlockChecker
from harness.cleanup import wait_until
from harness.processes import kill_pid
from harness.volume import MIB, SIZE, Volume, from_snapshot, from_volume

GROWN = SIZE + 64 * MIB
# Enough for a few writes of each thread. At the end every block is read once more.
BLOCKS, BLOCK_BYTES, THREADS = 256, 4096, 4


class Journey:
    """`kind`: xfs, ext4 or block.

    `copies`: the pool cannot reflink, so snapshots are taken of volumes not in use.
    """

    def __init__(self, survivor, name, *, kind="xfs", copies=False):
        self.survivor, self.rig, self.name = survivor, survivor.rig, name
        self.copies = copies
        self.node = self.rig.nodes[0]
        self.volume = Volume(self.rig, self.node, f"{name}-{kind}", block=kind == "block", fs=kind)
        self.snapshot_id = None
        self.checker, self.writing = None, False
        self.supervisor_deaths = 0  # when the device was last made

    def go(self):
        """Runs every step, and repeats each until it succeeds. Then nothing of the volume may remain."""
        volume, step = self.volume, self.survivor.step
        step("create", volume.create)
        step("controller publish", volume.controller_publish)
        self.stage()
        if self.copies:
            step("unstage to copy", self.unstage)
            step("controller unpublish to copy", volume.controller_unpublish)
            self.snapshot_and_clone()
            step("controller publish again", volume.controller_publish)
            self.stage()
        step("publish", self.on_live_device(volume.publish))
        self.start_writing()
        step("controller expand", lambda: volume.controller_expand(GROWN))
        if volume.fs != "ext4":  # it grows online only where the kernel lets root do so
            step("node expand", self.on_live_device(volume.node_expand))
        step("controller modify", lambda: volume.modify(maxIops="100000", maxBandwidth="1Gi"))
        step("tgtd dies", self.kill_tgtd)
        if not self.copies:
            self.snapshot_and_clone()
            if not store.ON_CEPH:
                self.snapshot_group()
        self.stop_writing()
        step("unpublish", volume.unpublish)
        step("unstage", self.unstage)
        step("controller unpublish", volume.controller_unpublish)
        step("controller expand offline", lambda: volume.controller_expand(GROWN + 64 * MIB))
        step("controller modify offline", lambda: volume.modify(durability="sync", maxIops="unlimited"))
        step("stage with the node's own grant, and grow", volume.stage)
        step("unstage with the node's own grant", self.unstage)
        self.fence_and_unfence()
        step("delete", volume.delete)

    def snapshot_and_clone(self):
        step = self.survivor.step
        step("snapshot", self.snapshot)
        for kind, source in (
            ("restored", from_snapshot(self.snapshot_id)),
            ("cloned", from_volume(self.volume.id)),
        ):
            clone = Volume(
                self.rig, self.node, f"{self.name}-{kind}", block=self.volume.block, source=source, size=GROWN
            )
            step(f"create {kind}", clone.create)
            step(f"delete {kind}", clone.delete)
        step(
            "delete snapshot", lambda: self.rig.controller.client.DeleteSnapshot(snapshot_id=self.snapshot_id)
        )

    def snapshot_group(self):
        """Of the volume in use, and of one that is not."""
        step = self.survivor.step
        idle = Volume(self.rig, self.node, f"{self.name}-idle", block=True)
        step("create another", idle.create)

        made = []

        def create():
            answer = self.rig.controller.client.CreateVolumeGroupSnapshot(
                name=f"{self.name}-group", source_volume_ids=[self.volume.id, idle.id]
            )
            made.append(answer.group_snapshot)

        def delete():
            self.rig.controller.client.DeleteVolumeGroupSnapshot(
                group_snapshot_id=made[-1].group_snapshot_id,
                snapshot_ids=[each.snapshot_id for each in made[-1].snapshots],
            )

        step("snapshot a group", create)
        assert len(made[-1].snapshots) == 2
        step("delete the group", delete)
        step("delete the other one", idle.delete)

    def snapshot(self):
        self.snapshot_id = self.volume.snapshot(f"{self.name}-snapshot")

        def ready():
            return self.rig.controller.client.GetSnapshot(snapshot_id=self.snapshot_id).snapshot.ready_to_use

        wait_until(ready, 30, "the snapshot is ready")

    def kill_tgtd(self):
        if pid := self.rig.tgtd():
            kill_pid(pid)

        def back():
            self.rig.controller.client.GetPluginInfo()  # the plugin itself may die of it
            return self.rig.tgtd() and self.rig.portal_open()

        wait_until(back, 30, "tgtd is back")

    def fence_and_unfence(self):
        """Fences a volume in use. The next stage meets the device that the fence left behind."""
        step, volume, node_id = self.survivor.step, self.volume, self.node.id
        step("controller publish to fence", volume.controller_publish)
        step("stage to fence", volume.stage)
        step("fence", lambda: self.rig.fence(node_id))
        step("unfence", lambda: self.rig.unfence(node_id))
        step("controller publish after the fence", volume.controller_publish)
        step("stage over the fenced device", volume.stage)
        step("unstage after the fence", self.unstage)
        step("controller unpublish after the fence", volume.controller_unpublish)

    # The device dies with the supervisor. An orchestrator then takes the volume down and brings it up again.

    def stage(self):
        self.supervisor_deaths = self.survivor.supervisor_deaths
        self.survivor.step("stage", self.volume.stage)

    def unstage(self):
        """Repeats it while it says that a device that died took data along."""
        while True:
            try:
                return self.volume.unstage()
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.DATA_LOSS or not self.device_died():
                    raise

    def on_live_device(self, call):
        """A call for a step, which first replaces the device if that has died."""

        def with_device():
            if self.device_died():
                self.make_device_anew()
            call()

        return with_device

    def device_died(self):
        return self.survivor.supervisor_deaths > self.supervisor_deaths

    def repair_device(self):
        """Replaces a device that a step has lost although it succeeded; between steps, with the fail point
        off.
        """
        self.survivor.point.disarm()
        if self.device_died():
            self.make_device_anew()

    def make_device_anew(self):
        deaths = self.survivor.supervisor_deaths
        if self.writing:
            self.end_checker(GOOD, IO_ERROR)
        self.volume.unpublish()
        self.unstage()
        self.volume.stage().publish()
        self.supervisor_deaths = deaths
        if self.writing:
            self.checker.verify()
            self.checker.start()

    def start_writing(self):
        self.repair_device()
        if not self.volume.block:
            self.volume.make_file(BLOCKS * BLOCK_BYTES)
        self.checker = BlockChecker(self.volume, threads=THREADS, blocks=BLOCKS, flush_every=16).start()
        self.writing = True

    def stop_writing(self):
        self.repair_device()
        self.writing = False
        self.end_checker(GOOD)
        self.checker.verify()

    def end_checker(self, *good):
        code, counters = self.checker.stop()
        assert code in good, f"the checker ended with {code}: {counters}\n{self.checker.daemon.tail()}"
