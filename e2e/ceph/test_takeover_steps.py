"""The gateway that takes an array dies at each step, and so does its next try; then the one before wakes.

And what the one before was at when it was taken over: an image that it had just opened, a change of the
catalogue.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal

import grpc
import pytest

from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.csi import code_of
from harness.gateways import (
    Gateway,
    Machine,
    await_both,
    end_whole,
    freeze_at,
    machines,
    serves,
    stands_by,
    volume_in_use,
)
from harness.processes import state_of
from harness.rig import Rig
from harness.volume import MIB, Volume

BOTH = pytest.mark.parametrize("second", ["both portals are in the grants"], indirect=True)
STEPS = (
    "array.takeover.taken",
    "array.takeover.shut_out",
    "array.takeover.named",
    "array.takeover.catalogue_open",
    "array.tgtd.spawned",
    "array.tgtd.put_back",
    "array.tgtd.portal_open",
)


def dies_at(rig: Rig, point: str) -> dict[str, str]:
    """The environment of an agent that is killed there, once."""
    fired = rig.folder / f"fired-{len(list(rig.folder.glob('fired-*')))}"
    return {"LUNKEEPER_FAIL_POINT": point, "LUNKEEPER_FAIL_POINT_ONCE": str(fired)}


def dies(machine: Machine, what: str) -> None:
    wait_until(lambda: not machine.agent.running(), 60, lambda: f"{what}\n{machine.agent.tail()}")


@BOTH
@pytest.mark.timeout(900)
def test_the_next_gateway_dies_at_each_step_and_the_one_before_writes_nothing(
    rig: Rig, second: Gateway
) -> None:
    volume, checker = volume_in_use(rig)
    serving, other = machines(rig, second)
    for first, then in zip(STEPS, STEPS[1:] + STEPS[:1]):
        other.agent.kill()
        other.agent.start(**dies_at(rig, first))
        wait_until(lambda other=other: stands_by(other.agent), 60, "it stands by")
        frozen = serving.freeze()
        dies(other, f"it dies at {first}")
        other.agent.start(**dies_at(rig, then))
        dies(other, f"the next one dies at {then}")
        other.agent.start()
        wait_until(lambda other=other: serves(other.agent), 120, lambda other=other: other.agent.tail())
        checker.wait_for_writes(100, seconds=120)
        serving.thaw(frozen)
        wait_until(serving.is_gone, 60, "the old gateway has ended, and its tgtd")
        serving, other = other, serving
        rig.controller = serving.agent
    end_whole(volume, checker)


@BOTH
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "point",
    [
        "array.pool.file_made",
        "array.target.lun_made",
        "array.target.account_bound",
        "array.catalogue.committed",
    ],
)
def test_what_a_gateway_was_at_when_it_was_taken_over_is_done_or_not_done(
    rig: Rig, second: Gateway, point: str
) -> None:
    """It freezes in the middle of making or granting a volume, and wakes when another one serves."""
    volume, checker = volume_in_use(rig)
    serving, other = machines(rig, second)
    freeze_at(point, serving, other)
    late = Volume(rig, rig.nodes[1], "late", block=True, size=16 * MIB)
    agent = serving.agent.pid

    def make_and_grant() -> None:
        with contextlib.suppress(grpc.RpcError):  # OK is true of what was done before
            late.create().controller_publish()

    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        call = executor.submit(make_and_grant)
        wait_until(lambda: state_of(agent) == "T", 60, f"it freezes at {point}")
        wait_until(lambda: serves(other.agent), 120, other.agent.tail)
        checker.wait_for_writes(100, seconds=120)
        rig.controller = other.agent
        # Repeated by an orchestrator, at the one that serves now.
        repeated = Volume(rig, rig.nodes[1], "late", block=True, size=16 * MIB).up(with_controller=True)
        there = BlockChecker(repeated).start()
        there.wait_for_writes(100)
        os.kill(agent, signal.SIGCONT)
        call.result(120)
    wait_until(serving.is_gone, 60, "the old gateway has ended, and its tgtd")
    serving, other = await_both(serving, other)
    assert serving.agent is second
    for each, writer in ((volume, checker), (repeated, there)):
        writer.wait_for_writes(100, seconds=120)
        writer.stop_good()
        writer.verify()
        each.down(with_controller=True)
        # An image that nobody was registered for is shown to be open for 30 s after its tgtd is gone.
        wait_until(lambda each=each: code_of(each.delete)[0] == "OK", 60, "it is deleted", pause=1)
    assert not serving.agent.client.ListVolumes().entries
