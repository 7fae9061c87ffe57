"""A virtual machine moves live between two nodes that share a raw volume, and its old node is fenced or dies.

QEMU as KubeVirt runs it, without KubeVirt. The guest writes to the volume all the while, and tells each write
that was acknowledged. It reads all the while, too, and ends at a read that is older than a write.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from guest.moving import AT_FULL_SPEED, HELD_BACK, Acked, MovingGuest, record_of
from harness import catalogue
from harness.checker import BlockChecker
from harness.cleanup import Cleanup, wait_until
from harness.csi import code_of
from harness.leaks import Leaks
from harness.processes import alive
from harness.rig import Node, Rig
from harness.volume import MIB, Volume

pytestmark = pytest.mark.timeout(300)
WRITES = 50  # of a guest, before and after what happens


class SharedDisk:
    """A raw volume for many writers that is published on two nodes, and a guest that runs on the first."""

    def __init__(self, rig: Rig, cleanup: Cleanup) -> None:
        self.rig, self.cleanup, self.leaks = rig, cleanup, Leaks(rig)
        self.id_of_a, self.id_of_b = (node.id for node in rig.nodes)
        self.on_a, self.on_b = (self._published(node) for node in rig.nodes)
        # What this reads stays in the page cache of B's device, older than all that the guest will write.
        self.on_b.path().read_bytes()
        self.source = self.guest("source", self.on_a).boot()
        self.source.wait_for_writes(WRITES)

    def _published(self, node: Node) -> Volume:
        mode = "MULTI_NODE_MULTI_WRITER"
        return Volume(self.rig, node, "disk", block=True, size=16 * MIB, mode=mode).up(with_controller=True)

    def guest(self, name: str, volume: Volume) -> MovingGuest:
        guest = MovingGuest(self.rig.folder, name, volume.path())
        self.cleanup.add(guest.close)
        return guest

    def grant(self, node_id: str) -> list[tuple[object, ...]]:
        found = f"SELECT generation, target_secret, releasing FROM grants WHERE node = '{node_id}'"
        return catalogue.query(self.rig.pool, found)

    def medium(self) -> str:
        return hashlib.blake2b(self.rig.medium_of(self.on_a).read_bytes()).hexdigest()

    def migrate(self, *, pause: bool = False) -> MovingGuest:
        """The destination on B of a migration that is under way while the guest writes on A."""
        destination = self.guest("destination", self.on_b).expect(self.source)
        self.source.migrate(destination, rate=HELD_BACK, pause=pause)
        self.source.wait_for_migration("active")
        self.source.wait_for_writes(WRITES)
        assert self.source.migration() == "active", "it was too quick for this test"
        return destination

    def fence_a(self) -> None:
        self._fence(self.id_of_a, self.id_of_b)

    def fence_b(self) -> None:
        self._fence(self.id_of_b, self.id_of_a)

    def _fence(self, node_id: str, other: str) -> None:
        before = self.grant(other)
        self.rig.fence(node_id)
        assert not self.grant(node_id)
        assert before and self.grant(other) == before, "the other node's grant was touched"

    def restart_on_b(self) -> MovingGuest:
        """As KubeVirt does when a machine has ended. It finds all that the guest on A had told."""
        return self.guest("restarted", self.on_b).boot(record_of(self.source.acked()))

    def verify(self, *guests: MovingGuest, volume: Volume | None = None) -> None:
        """All that these guests have told is there, by B's device or another, and nothing older."""
        for guest in guests:
            guest.close()
        checker = BlockChecker(volume or self.on_b)
        checker.record.write_bytes(record_of(itertools.chain(*(guest.acked() for guest in guests))))
        assert checker.verify()["reads"] > 0

    def remove(self) -> None:
        for volume in (self.on_a, self.on_b):
            # A data path that died says first that what was not synced may be lost, and then goes on.
            wait_until(lambda: code_of(volume.unpublish().unstage)[0] == "OK", 20, "it is unstaged")
            volume.controller_unpublish()
        for node_id in (self.id_of_a, self.id_of_b):
            self.rig.unfence(node_id)
        self.on_b.delete()
        wait_until(lambda: not self.leaks.found(), 10, self.leaks.found)


@pytest.fixture
def disk(folder: Path, xfs_pool: Path, request: pytest.FixtureRequest) -> Iterator[SharedDisk]:
    """`request.param`: over how many tgtds the array spreads its grants, and so those of one volume."""
    tgtds = getattr(request, "param", 1)
    name = f"{request.node.name.removeprefix('test_')[:20]}-{tgtds}"
    with Rig(folder / name, xfs_pool, nodes=2, split=True, tgtds=tgtds) as rig, Cleanup() as cleanup:
        yield SharedDisk(rig, cleanup)


def is_one_story(acked: list[Acked]) -> bool:
    """Whether the versions of each block follow each other, none twice and none left out."""
    newest: dict[int, int] = {}
    for block, version in acked:
        if version != newest.get(block, 0) + 1:
            return False
        newest[block] = version
    return True


@pytest.mark.parametrize("disk", [1, 2], indirect=True, ids=["one_tgtd", "two_tgtds"])
def test_a_guest_that_has_moved_goes_on_when_its_old_node_is_fenced_and_leaves(disk: SharedDisk) -> None:
    source, destination = disk.source, disk.migrate()
    source.set_rate(AT_FULL_SPEED)
    source.wait_for_migration("completed")
    destination.wait_for_writes(WRITES)
    disk.fence_a()
    destination.wait_for_writes(WRITES)
    source.close()
    disk.on_a.down(with_controller=True)
    destination.wait_for_writes(WRITES)
    assert is_one_story(source.acked() + destination.acked())
    disk.verify(source, destination)
    disk.remove()


def test_a_guest_goes_on_when_its_old_node_is_fenced_at_the_switch_over(disk: SharedDisk) -> None:
    """It is stopped on A and does not run on B yet, so nothing of it is in flight."""
    source, destination = disk.source, disk.migrate(pause=True)
    source.set_rate(AT_FULL_SPEED)
    source.wait_for_migration("pre-switchover")
    disk.fence_a()
    source.go_on_migrating()
    destination.wait_for_writes(WRITES)
    assert is_one_story(source.acked() + destination.acked())
    disk.verify(source, destination)
    disk.remove()


def test_a_node_that_is_fenced_in_the_middle_of_a_migration_writes_nothing_more(disk: SharedDisk) -> None:
    """Nor does its guest move: QEMU flushes the disk before the switch-over, and that fails."""
    source, destination = disk.source, disk.migrate()
    disk.fence_a()
    fenced = disk.medium()
    source.wait_for_status("io-error")
    source.set_rate(AT_FULL_SPEED)
    source.wait_for_migration("failed")
    assert destination.wait_for_end() != 0
    assert disk.medium() == fenced, "A has written after its fence"
    restarted = disk.restart_on_b()
    for _ in range(3):  # the old guest's writes that failed are sent again, beside those of the new one
        source.retry()
        source.wait_for_status("io-error")
        restarted.wait_for_writes(WRITES)
    disk.verify(source, restarted)
    disk.remove()


def test_a_node_that_dies_in_the_middle_of_a_migration_costs_no_acknowledged_write(disk: SharedDisk) -> None:
    source, destination = disk.source, disk.migrate()
    cut_power(disk.rig.nodes[0], source)
    assert destination.wait_for_end() != 0
    disk.fence_a()
    restarted = disk.restart_on_b()
    restarted.wait_for_writes(WRITES)
    disk.verify(source, restarted)
    disk.rig.start()
    disk.remove()


def test_a_guest_stays_when_the_node_that_it_was_to_move_to_dies(disk: SharedDisk) -> None:
    source, destination = disk.source, disk.migrate()
    cut_power(disk.rig.nodes[1], destination)
    source.wait_for_migration("failed")
    disk.fence_b()
    source.wait_for_writes(WRITES)
    assert is_one_story(source.acked())
    disk.verify(source, volume=disk.on_a)
    disk.rig.start()
    disk.remove()


def test_a_node_that_freezes_in_the_middle_of_a_migration_writes_nothing_when_it_returns(
    disk: SharedDisk,
) -> None:
    source, destination = disk.source, disk.migrate()
    signal_all(disk.rig.nodes[0], source, signal.SIGSTOP)
    disk.fence_a()
    destination.close()  # it would wait for the rest for ever; KubeVirt deletes its pod
    restarted = disk.restart_on_b()
    signal_all(disk.rig.nodes[0], source, signal.SIGCONT)
    source.wait_for_migration("failed")
    source.wait_for_status("io-error")
    restarted.wait_for_writes(WRITES)
    disk.verify(source, restarted)
    disk.remove()


def signal_all(node: Node, guest: MovingGuest, number: signal.Signals) -> list[int]:
    """To all of a node at once; the pids."""
    worker = node.datapath.worker()
    assert worker is not None
    pids = [guest.pid, node.server.pid, node.datapath.pid, worker]
    for pid in pids:
        os.kill(pid, number)
    return pids


def cut_power(node: Node, guest: MovingGuest) -> None:
    pids = signal_all(node, guest, signal.SIGKILL)
    node.server.kill()
    node.datapath.kill()
    guest.close()
    wait_until(lambda: not any(alive(pid) for pid in pids), 20, "all of the node ends")
