"""SIGKILL of the agent in the middle of each kind of call: the repeated call succeeds."""

import traceback

import pytest

from agent.agents import AgentRig
from harness.cleanup import wait_until
from harness.faults import FailPoint, Survivor, fail_points
from harness.leaks import Leaks
from harness.volume import MIB, Volume, from_snapshot

# One for each call that changes something. e2e/faults tries all fail points, with the array in the
# controller.
POINTS = (
    "array.create.stored",
    "array.grant.stored",
    "array.expand.lun_grown",
    "array.modify.stored",
    "array.snapshot.stored",
    "array.fence.stored",
    "array.release.stored",
    "array.delete.row_deleted",
)


def journey(rig, survivor, name):
    """The calls between a controller and an agent; e2e/faults has the node's part."""
    step, node = survivor.step, rig.nodes[0]
    volume = Volume(rig, node, name, block=True, size=16 * MIB)
    step("create", volume.create)
    step("controller publish", volume.controller_publish)
    step("expand", lambda: volume.controller_expand(32 * MIB))
    step("modify", lambda: volume.modify(maxIops="200"))
    snapshots = []
    step("snapshot", lambda: snapshots.append(volume.snapshot(f"{name}-s")))
    clone = Volume(rig, node, f"{name}-c", block=True, size=volume.size, source=from_snapshot(snapshots[-1]))
    step("clone", clone.create)
    step("delete snapshot", lambda: rig.controller.client.DeleteSnapshot(snapshot_id=snapshots[-1]))
    step("fence", lambda: rig.fence(node.id))
    step("unfence", lambda: rig.unfence(node.id))
    step("controller publish again", volume.controller_publish)
    step("controller unpublish", volume.controller_unpublish)
    step("delete clone", clone.delete)
    step("delete", volume.delete)


@pytest.mark.timeout(600)
def test_killed_in_the_middle_of_a_call_the_repeated_one_succeeds(folder, xfs_pool):
    problems, missed = {}, []
    assert set(POINTS) <= set(fail_points())
    with AgentRig(folder / "faults", xfs_pool, start=False) as rig:
        for point in POINTS:
            fail_point = FailPoint(rig, point)
            survivor = Survivor(rig, fail_point)
            try:
                for server in rig.servers():
                    server.kill()  # a stop would wait until this process's idle connections are closed
                survivor.restart()
                leaks = Leaks(rig)
                journey(rig, survivor, point.replace(".", "-").replace("_", "-"))
                wait_until(lambda: not leaks.found(), 5, lambda: f"nothing leaks: {leaks.found()}")
            except Exception:  # every point gets its turn
                problems[point] = traceback.format_exc(limit=-4)
            if not fail_point.hits:
                missed.append(point)
        assert not problems, (
            "\n".join(f"==== {point}\n{text}" for point, text in problems.items()) + rig.logs()
        )
    assert not missed, f"never reached: {missed}"
