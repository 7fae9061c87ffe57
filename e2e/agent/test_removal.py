"""An array is removed by force while its volumes are used, whether it answers, hangs, or is gone for good.

The node has a mounted file system and a raw device of it, and a raw device of another array. Each has a
writer, and the file system another one that writes through the page cache. The test does what kubelet does
of the pods.
"""

import contextlib
import os
import pathlib
import signal
import subprocess

import pytest

from agent.coordinated import CoordinatedRig
from harness.checker import IO_ERROR, BlockChecker
from harness.cleanup import Cleanup, wait_until
from harness.csi import code_of
from harness.leaks import loops, mounts, targets
from harness.places import LUNKEEPER
from harness.processes import Daemon, kill_pid
from harness.volume import MIB, Volume

RECORD = "lunkeeper-removed-arrays"
FOLLOWED_SECONDS = 90


def answers(rig, agent, cleanup):
    """It serves on: what ends the I/O is the node alone."""


def freezes(rig, agent, cleanup):
    """Its tgtd keeps every session and answers none."""
    tgtd = agent.tgtd()
    os.kill(tgtd, signal.SIGSTOP)
    cleanup.add(os.kill, tgtd, signal.SIGCONT)
    wait_until(lambda: stuck(rig), 30, "a process waits for it that no signal ends")


def is_lost(rig, agent, cleanup):
    """For good: its agent would start another tgtd, so it goes first."""
    agent.kill()
    kill_pid(agent.tgtd())


@pytest.fixture
def rig(folder, xfs_pool, request):
    with CoordinatedRig(folder / request.node.callspec.id, xfs_pool, arrays=2) as rig:
        yield rig


class Used:
    """A volume on one of the arrays, a pod that uses it, and its writer."""

    def __init__(self, rig, agent, name, **options):
        self.rig = rig
        self.volume = rig.up(
            Volume(rig, rig.nodes[0], name, parameters={"array": agent.array_name}, **options)
        )
        self.pod_uid = self.uid_now()
        if not self.volume.block:
            self.volume.make_file(16 * MIB)
        self.writer = BlockChecker(self.volume, threads=2).start()
        self.cached_writer = None if self.volume.block else self.write_through_cache()

    def write_through_cache(self):
        """Until the first error. It has the rig's mark, and so have the programs that it starts."""
        file = self.volume.target / "cached"
        again = f"while dd if=/dev/zero of={file} bs=1M count=16 conv=fsync,notrunc; do :; done"
        return Daemon(
            "cached_writer",
            ["sh", "-c", again],
            log=self.rig.folder / "cached.log",
            environment=self.rig.environment,
            dies_with_us=True,
        ).start()

    def uid_now(self):
        """The pod's; another once it was deleted, as its owner makes it anew at once."""
        return self.rig.api.get(f"/api/v1/namespaces/db/pods/{self.volume.name}")["metadata"]["uid"]

    def fails(self):
        wait_until(lambda: not self.writer.running(), 30, f"{self.volume.name}: its writer gets an error")
        assert self.writer.stop()[0] == IO_ERROR, self.writer.daemon.tail()
        if self.cached_writer is not None:
            wait_until(lambda: not self.cached_writer.running(), 30, "the writer through the cache ends")

    def leave(self):
        """As kubelet does once the pod is deleted: it repeats the calls until they succeed."""
        wait_until(lambda: self.uid_now() != self.pod_uid, 30, f"{self.volume.name}: its pod is deleted")
        answer = "", ""

        def done():
            nonlocal answer
            answer = code_of(self.volume.down)
            return answer[0] == "OK"

        wait_until(done, 60, lambda: f"{self.volume.name} leaves the node: {answer}", pause=0.2)


def command(rig, *words):
    return [LUNKEEPER, *words, f"--endpoint=unix://{rig.controller.socket}"]


def is_refused(rig, array, used):
    """The command names every volume and its pod, and changes nothing."""

    def devices():
        uses = rig.controller.client.ListArrayUses(array=array).uses
        return {use.volume for use in uses if use.has_device}

    wait_until(
        lambda: devices() == {each.volume.id for each in used}, 20, "the node's heartbeats tell what it has"
    )

    def named_all():
        done = subprocess.run(command(rig, "remove-array", array), capture_output=True, text=True, timeout=60)
        assert done.returncode == 1, done
        return all(each.volume.id in done.stderr and f"db/{each.volume.name}" in done.stderr for each in used)

    wait_until(named_all, 20, "the command names who uses the array", pause=0.2)
    assert all(each.writer.running() for each in used)
    assert "data" not in rig.api.get(f"/api/v1/namespaces/lunkeeper/configmaps/{RECORD}")


def left_on_node(rig):
    """Loop devices, mounts, and how many FUSE devices the data path has."""
    fuse = 0
    for process in (rig.nodes[0].datapath.pid, rig.nodes[0].datapath.worker()):
        for descriptor in pathlib.Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                fuse += os.readlink(descriptor) == "/dev/fuse"
    return loops(rig), mounts(rig.folder), fuse


def stuck(rig):
    """Threads that no signal ends. The writer of the other array, which waits for its disk, has no mark."""
    found = []
    for pid in rig.processes():
        for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):
                if stat.read_text().rpartition(")")[2].split()[0] == "D":
                    found.append(str(stat))
    return found


def untouched(rig):
    """What a removal of the second array may not change of the first one."""
    datapath = rig.nodes[0].datapath
    return rig.tgtd(), targets(rig), datapath.pid, datapath.worker()


@pytest.mark.parametrize("befall", [answers, freezes, is_lost])
def test_a_removed_array_leaves_nothing_on_a_node_and_another_goes_on(rig, befall):
    stays, goes = rig.agents
    other = Used(rig, stays, "other", block=True, size=16 * MIB)
    alone = left_on_node(rig)
    used = [
        Used(rig, goes, "files"),
        Used(rig, goes, "raw", block=True, size=16 * MIB),
    ]
    is_refused(rig, goes.array_name, used)
    before = untouched(rig)
    with Cleanup() as cleanup:
        befall(rig, goes, cleanup)
        removal = subprocess.Popen(
            command(rig, "remove-array", goes.array_name, "--force", f"--timeout={FOLLOWED_SECONDS}"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        cleanup.add(removal.kill)
        for each in used:
            each.fails()
        for each in used:
            each.leave()
        told, _ = removal.communicate(timeout=FOLLOWED_SECONDS + 30)
        assert removal.returncode == 0, told
        for each in used:
            assert f"volume {each.volume.id} on node {rig.nodes[0].name}: detached" in told, told
        wait_until(lambda: left_on_node(rig) == alone, 20, lambda: f"{left_on_node(rig)}, and not {alone}")
        wait_until(lambda: not stuck(rig), 10, lambda: f"no process hangs: {stuck(rig)}")
        other.writer.wait_for_writes(200)
    assert untouched(rig) == before and rig.fence_of(rig.nodes[0]) == {}
    other.writer.stop_good()
    other.writer.verify()
    other.volume.down()
