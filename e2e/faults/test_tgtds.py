"""An array of several tgtds, as nodes and their writers see it."""

import os
import signal

import pytest

from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.dependent_writers import DependentWriters, broken
from harness.groups import delete_group, group_in_time, volume_on_each_node
from harness.rig import Rig

TGTDS = 3
ROUNDS = 5
WRITES = 5000  # more than a checker has between two flushes


@pytest.fixture
def rig(folder, xfs_pool, request):
    with Rig(folder / request.node.name[:24], xfs_pool, nodes=3, split=True, tgtds=TGTDS) as rig:
        yield rig


@pytest.fixture
def volumes(rig):
    """One on each node, and in each tgtd."""
    with volume_on_each_node(rig) as made:
        assert len({volume.publish_context["portal"] for volume in made}) == TGTDS
        yield made


def test_neither_their_death_nor_another_agent_costs_a_writer_an_error(rig, volumes):
    checkers = [BlockChecker(volume, blocks=256).start() for volume in volumes]
    for number in range(TGTDS):
        os.kill(rig.tgtd(number), signal.SIGKILL)
    for checker in checkers:
        checker.wait_for_writes(WRITES, 120)
    last = wait_until(lambda: rig.tgtd(TGTDS - 1), 30, "the last tgtd is back")
    rig.controller.kill()
    os.kill(last, signal.SIGKILL)
    rig.controller.start()
    wait_until(rig.controller.ready, 30, rig.logs)
    for checker in checkers:
        checker.wait_for_writes(WRITES, 120)
    assert [checker.stop()[0] for checker in checkers] == [0] * TGTDS


@pytest.mark.files  # on Ceph there are no groups
def test_a_group_of_volumes_in_several_tgtds_is_of_one_moment(rig, volumes):
    with DependentWriters(volumes) as writers:
        for number in range(ROUNDS):
            writers.wait_for_records(20)
            group, files = group_in_time(rig, volumes, f"round-{number}")
            found = broken(files)
            assert not found, f"round {number}: {found[:5]}"
            delete_group(rig, group)
