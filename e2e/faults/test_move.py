"""A node dies or is fenced, and another takes its volume."""

import pytest

from harness.checker import IO_ERROR, BlockChecker
from harness.cleanup import wait_until
from harness.csi import code_of
from harness.leaks import Leaks
from harness.rig import Rig
from harness.volume import MIB, Volume


@pytest.fixture
def rig(folder, xfs_pool, request):
    with Rig(folder / request.node.name[:20], xfs_pool, nodes=2, split=True) as rig:
        yield rig


@pytest.mark.store
def test_a_fenced_node_fails_and_the_next_one_has_every_acknowledged_write(rig):
    leaks = Leaks(rig)
    first, second = rig.nodes
    volume = Volume(rig, first, "moved", block=True, size=16 * MIB).up(with_controller=True)
    checker = BlockChecker(volume).start()
    checker.wait_for_writes(1000)

    there = Volume(rig, second, "moved", block=True, size=16 * MIB).create()
    code, text = code_of(there.controller_publish)
    assert code == "FAILED_PRECONDITION" and first.name in text
    rig.fence(first.id)
    wait_until(lambda: not checker.running(), 10, "the fenced writer gets an error")
    assert checker.stop()[0] == IO_ERROR
    there.controller_publish().stage().publish()
    checker.verify(there)
    assert code_of(volume.controller_publish)[0] == "FAILED_PRECONDITION", "a fenced node gets no grant"

    volume.unpublish().unstage()
    rig.unfence(first.id)
    there.down(with_controller=True).delete()
    wait_until(lambda: not leaks.found(), 5, leaks.found)


def test_a_dead_node_is_fenced_and_its_volume_moves(rig):
    first, second = rig.nodes
    dead = first.id
    volume = Volume(rig, first, "survivor", block=True, size=16 * MIB).up(with_controller=True)
    checker = BlockChecker(volume).start()
    checker.wait_for_writes(1000)
    first.server.kill()
    first.datapath.kill()
    wait_until(lambda: not checker.running(), 30, "the writer on the dead data path gets an error")
    rig.fence(dead)
    there = (
        Volume(rig, second, "survivor", block=True, size=16 * MIB)
        .create()
        .controller_publish()
        .stage()
        .publish()
    )
    checker.verify(there)
    there.down(with_controller=True).delete()
