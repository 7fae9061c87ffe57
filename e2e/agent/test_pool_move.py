"""A pool on a disk that two hosts reach: it moves in order, or its host loses its power."""

import os
import re
import subprocess
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.agents import Agent, AgentRig
from harness import docs, mounts, places
from harness.checker import IO_ERROR, BlockChecker
from harness.cleanup import wait_until
from harness.pool import run
from harness.processes import free_port, kill_pid
from harness.rig import free_control_port
from harness.storage_host import BOOT_ID
from harness.volume import MIB, Volume


class Disk:
    """A file system that one host at a time has mounted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.image, self.mounted = folder, folder / "disk", folder / "mounted"
        self.mounted.mkdir()
        run("truncate", "--size=2G", self.image)
        run("mkfs.xfs", "-q", "-m", "reflink=1", self.image)
        self.mount()

    def mount(self) -> None:
        run("mount", "-o", "loop", self.image, self.mounted)

    def unmount(self) -> None:
        """A process that has ended may take a moment to let its files go."""
        umount = ["umount", str(self.mounted)]
        wait_until(
            lambda: subprocess.run(umount, capture_output=True, timeout=60).returncode == 0,
            30,
            "nobody has the file system in use",
            0.1,
        )


class Host:
    """A host of the array: an agent and a tgtd with a boot id of their own, and the disk while it has it."""

    def __init__(self, agent: Agent, portal: str, disk: Disk) -> None:
        self.agent, self.portal, self.disk = agent, portal, disk
        self.boot_id = disk.folder / f"{agent.name}.boot_id"
        self.boot_id.write_text(f"{uuid.uuid4()}\n")
        agent.argv = self.inside(*agent.argv)

    def inside(self, *argv: object) -> list[str]:
        """With its boot id, and without the mounts of other tests."""
        others = mounts.drop_others(keep=self.disk.mounted)
        script = f'{others}; mount --bind "{self.boot_id}" {BOOT_ID} && exec "$@"'
        private = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh")
        return [*private, *map(str, argv)]

    def hand_over(self, pool: Path) -> None:
        """As a cluster manager stops the agent, and then the unit of the page."""
        assert self.agent.stop() == 0
        command = re.search(r"^ExecStop=(.*)$", unit(), re.MULTILINE)[1].replace("/srv/lunkeeper", str(pool))
        run(*self.inside(places.LUNKEEPER, *command.split()[1:]))
        assert self.agent.tgtd() is None
        self.disk.unmount()

    def lose_power(self, pool: Path) -> None:
        self.agent.kill()
        if (tgtd := self.agent.tgtd()) is not None:
            kill_pid(tgtd)
        run("xfs_io", "-x", "-c", "shutdown", self.disk.mounted)  # what is in memory alone is lost
        self.disk.unmount()


def unit() -> str:
    """The page's unit whose stop makes the pool ready to move."""
    return docs.example("text", "ExecStop=")


class SharedDisk(AgentRig):
    """An array whose pool is on a disk that a second host can mount; the first one has it."""

    def __init__(self, folder: Path, disk: Disk, *, portal_moves: bool) -> None:
        super().__init__(folder, disk.mounted, start=False)
        first, portal = self.agents[0], self.portal if portal_moves else f"127.0.0.1:{free_port()}"
        port, address = free_control_port(), first.address
        second = Agent(
            self, self.array_name, self.pool, portal, port, host="-second", address=address
        )
        if not portal_moves:
            first.argv.append(f"--peer-portal={portal}")
            second.argv.append(f"--peer-portal={self.portal}")
        self.cleanup.add(self._forget, second)
        self.hosts = [Host(first, self.portal, disk), Host(second, portal, disk)]

    def move(self, leave: Callable[[Host, Path], None]) -> None:
        """The pool goes from the host that has it to the other one; `leave`: how it leaves."""
        old, new = self.hosts
        leave(old, self.pool)
        new.disk.mount()
        self.hosts, self.agents = [new, old], [new.agent]
        self.start()


@pytest.fixture(params=[True, False], ids=["the address moves", "each has its own"])
def rig(folder, request):
    place = Path(tempfile.mkdtemp(dir=folder))
    disk = Disk(place)
    try:
        with SharedDisk(place / "rig", disk, portal_moves=request.param) as rig:
            rig.start()
            yield rig
    finally:
        disk.unmount()


def writer(rig, name, *, flush_every, **parameters):
    volume = Volume(rig, rig.nodes[0], name, block=True, size=16 * MIB, parameters=parameters)
    volume.up(with_controller=True)
    checker = BlockChecker(volume, flush_every=flush_every).start()
    checker.wait_for_writes(300)
    return volume, checker


def test_a_pool_that_moves_in_order_costs_no_error_and_no_byte(rig):
    writers = [writer(rig, "never-flushed", flush_every=0), writer(rig, "flushed", flush_every=64)]
    for _ in range(2):  # there and back
        rig.move(Host.hand_over)
        for _, checker in writers:
            checker.wait_for_writes(300, seconds=60)
        made = Volume(rig, rig.nodes[0], "made-there", block=True, size=16 * MIB).up(with_controller=True)
        assert made.publish_context["portal"] == rig.hosts[0].portal
        made.down(with_controller=True).delete()
    for volume, checker in writers:
        checker.stop_good()
        checker.verify()
        volume.down(with_controller=True).delete()


def test_a_host_that_loses_its_power_loses_nothing_silently(rig):
    """`sync` volumes go on, and what was flushed is there; a device that lost acknowledged writes fails."""
    _, lossy = writer(rig, "never-flushed", flush_every=0)
    synced, safe = writer(rig, "synced", flush_every=0, durability="sync")
    flushed, idle = writer(rig, "flushed", flush_every=64)
    idle.stop_good()
    with open(flushed.path(), "rb+") as device:
        os.fsync(device.fileno())
    rig.move(Host.lose_power)
    safe.wait_for_writes(300, seconds=60)
    safe.stop_good()
    safe.verify()
    idle.verify()
    wait_until(lambda: not lossy.running(), 60, "the device has failed")
    assert lossy.stop()[0] == IO_ERROR
    for volume in (synced, flushed):
        volume.down(with_controller=True).delete()
    assert "acknowledged writes were flushed" in rig.nodes[0].datapath.log.read_text()


def test_systemd_takes_the_unit_of_the_page(tmp_path):
    path = tmp_path / "lunkeeper-pool.service"
    path.write_text(unit().replace("/usr/bin/lunkeeper", str(places.LUNKEEPER)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and path.name not in done.stderr, done.stderr
