"""Both gateways of an array fail in turn, at random moments, under writers that check every byte."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator

import pytest

from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.gateways import Gateway, Machine, serves
from harness.rig import Rig
from harness.volume import MIB, Volume

ROUNDS = int(os.environ.get("GATEWAY_ROUNDS", "3"))
SEED = int(os.environ.get("GATEWAY_SEED", str(random.randrange(1 << 30))))
SECONDS_OF_A_ROUND = 60


@contextlib.contextmanager
def writers(rig: Rig) -> Iterator[list[BlockChecker]]:
    """Two on each node; at the end everything is read back, and deleted."""
    volumes = [
        Volume(rig, node, f"on-{node.name}-{number}", block=True, size=16 * MIB).up(with_controller=True)
        for node in rig.nodes
        for number in range(2)
    ]
    checkers = [BlockChecker(volume).start() for volume in volumes]
    yield checkers
    for checker in checkers:
        checker.stop_good()
        checker.verify()
    for volume in volumes:
        volume.down(with_controller=True).delete()


def fail(machine: Machine, choice: random.Random, other: Machine) -> None:
    """Until the other one serves. What froze wakes then, or is dead by then."""
    frozen = machine.freeze() if choice.random() < 0.5 else None
    if frozen is None:
        machine.die()
    wait_until(
        lambda: serves(other.agent), SECONDS_OF_A_ROUND, lambda: f"the other serves\n{other.agent.tail()}"
    )
    if frozen is not None:
        machine.thaw(frozen)
    wait_until(machine.is_gone, SECONDS_OF_A_ROUND, "the old gateway has ended, and its tgtd")


@pytest.mark.timeout(300 + 2 * SECONDS_OF_A_ROUND * ROUNDS)
@pytest.mark.parametrize("second", ["both portals are in the grants"], indirect=True)
def test_gateways_that_fail_in_turn_lose_no_byte_and_cause_no_error(rig: Rig, second: Gateway) -> None:
    print(f"GATEWAY_SEED={SEED}")
    choice = random.Random(SEED)
    serving, other = Machine(rig.controller, rig.tgt_socket(0)), Machine(second, second.tgt_socket)
    with writers(rig) as checkers:
        for number in range(ROUNDS):
            for checker in checkers:
                checker.wait_for_writes(100, seconds=120)
            time.sleep(choice.uniform(0, 2))  # a moment of its own
            began = time.monotonic()
            fail(serving, choice, other)
            serving, other = other, serving
            rig.controller = serving.agent
            print(f"round {number}: {time.monotonic() - began:.1f} s")
        for checker in checkers:
            checker.wait_for_writes(100, seconds=120)
