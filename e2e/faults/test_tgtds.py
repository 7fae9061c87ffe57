"""An array of several tgtds, as nodes and their writers see it."""

import os
import signal

import pytest

from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.dependent_writers import DependentWriters, broken
from harness.rig import Rig
from harness.volume import MIB, Volume

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
    made = [
        Volume(rig, node, f"of-{node.name}", block=True, size=64 * MIB).up(with_controller=True)
        for node in rig.nodes
    ]
    assert len({volume.publish_context["portal"] for volume in made}) == TGTDS
    yield made
    for volume in made:
        volume.down(with_controller=True).delete()


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


def test_a_group_of_volumes_in_several_tgtds_is_of_one_moment(rig, volumes):
    client = rig.controller.client

    def group(name):
        try:
            return client.CreateVolumeGroupSnapshot(
                name=name, source_volume_ids=[volume.id for volume in volumes]
            ).group_snapshot
        except Exception as error:  # the machine is busy
            assert error.code().name == "UNAVAILABLE"
            return None

    with DependentWriters(volumes) as writers:
        for number in range(ROUNDS):
            writers.wait_for_records(20)
            made = wait_until(lambda number=number: group(f"round-{number}"), 120, f"group {number}")
            ids = {snapshot.source_volume_id: snapshot.snapshot_id for snapshot in made.snapshots}
            found = broken([rig.pool / "snapshots" / ids[volume.id] for volume in volumes])
            assert not found, f"round {number}: {found[:5]}"
            client.DeleteVolumeGroupSnapshot(
                group_snapshot_id=made.group_snapshot_id, snapshot_ids=list(ids.values())
            )
