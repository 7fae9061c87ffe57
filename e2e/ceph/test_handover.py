"""An array on Ceph is handed over from one gateway to the other, under a writer that checks every byte."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.agents import page
from harness import docs
from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.gateways import (
    Gateway,
    Machine,
    await_both,
    machines,
    path_of,
    serves,
    stands_by,
    status_of,
)
from harness.processes import Daemon, free_port, state_of
from harness.rig import Rig, Server
from harness.volume import MIB, Volume

BOTH = pytest.mark.parametrize("second", ["both portals are in the grants"], indirect=True)
POINTS = ("begun", "closed", "stopped", "released")


def handover(server: Server, folder: Path) -> Daemon:
    """The command, on its way, with a log of its own."""
    argv = [server.argv[0], "array", "handover", f"--endpoint=unix://{server.socket}"]
    log = folder / f"handover-{len(list(folder.glob('handover-*')))}"
    return Daemon("handover", argv, log=log, dies_with_us=True).start()


def finish(command: Daemon) -> tuple[int, str]:
    """Its exit code, and what it has said."""
    assert command.process is not None
    return command.process.wait(120), command.log.read_text()


def hand_over(server: Server, folder: Path) -> str:
    code, said = finish(handover(server, folder))
    assert code == 0, f"{said}\n{server.tail()}"
    return said


class Writer:
    """Writes from before the first handover to the last one, and knows the longest time without an answer."""

    def __init__(self, rig: Rig) -> None:
        self.volume = Volume(rig, rig.nodes[0], "v", block=True, size=16 * MIB).up(with_controller=True)
        self.checker = BlockChecker(self.volume).start()
        self.longest, self._ends = 0.0, threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()

    def _look(self) -> None:
        seen, since = -1, time.monotonic()
        while not self._ends.wait(0.01):
            now, acknowledged = time.monotonic(), self.checker.acknowledged()
            if acknowledged != seen:
                self.longest, seen, since = max(self.longest, now - since), acknowledged, now

    def goes_on(self) -> None:
        self.checker.wait_for_writes(300, seconds=120)

    def pause(self) -> float:
        """The longest one since this was asked last."""
        longest, self.longest = self.longest, 0.0
        return longest

    def end(self) -> None:
        self._ends.set()
        self._watch.join()
        self.checker.stop_good()
        self.checker.verify()
        self.volume.down(with_controller=True).delete()


@contextlib.contextmanager
def writing(rig: Rig) -> Iterator[Writer]:
    writer = Writer(rig)
    writer.goes_on()
    yield writer
    writer.goes_on()
    writer.end()


@BOTH
def test_an_array_is_handed_over_back_and_forth_without_an_error(rig: Rig, second: Gateway) -> None:
    serving, other = machines(rig, second)
    with writing(rig) as writer:
        for _ in range(4):
            writer.pause()
            began = time.monotonic()
            said = hand_over(serving.agent, rig.folder)
            took = time.monotonic() - began
            assert "not in order" not in said
            assert "is open, and I/O goes on there" in said
            wait_until(serving.is_gone, 30, "the old gateway has ended, and its tgtd")
            assert serving.agent.process is not None
            assert serving.agent.process.wait() == 0
            writer.goes_on()
            print(f"the command took {took:.1f} s, and the writer waited {writer.pause():.1f} s\n{said}")
            wait_until(lambda: stands_by(serving.agent), 60, lambda: f"it stands by\n{serving.agent.tail()}")
            assert serves(other.agent)
            wait_until(lambda: "gave it away; it was ready" in status_of(other.agent), 30, "it is told")
            serving, other = other, serving
            rig.controller = serving.agent
        assert path_of(rig.nodes[0].server, writer.volume.id) == (rig.portal, 4)


@BOTH
def test_without_one_that_stands_by_nothing_is_done(rig: Rig, second: Gateway) -> None:
    process = rig.controller.pid
    with writing(rig):
        code, said = finish(handover(rig.controller, rig.folder))
        assert code == 1
        assert "no gateway stands by that could take it, so nothing was done" in said
        machines(rig, second)
        second.kill()  # and leaves its entry
        code, said = finish(handover(rig.controller, rig.folder))
        assert code == 1
        assert rig.controller.ready()
        assert rig.controller.pid == process


@BOTH
def test_where_it_cannot_be_done_the_command_says_so(rig: Rig, second: Gateway) -> None:
    machines(rig, second)
    code, said = finish(handover(second, rig.folder))
    assert code == 1
    assert "one that stands by has none" in said
    assert rig.controller.ready()


@BOTH
def test_the_metrics_say_who_serves_and_whether_another_one_stands_by(rig: Rig, second: Gateway) -> None:
    port = free_port()
    rig.controller.kill()
    rig.controller.argv.append(f"--metrics-address=127.0.0.1:{port}")
    rig.controller.start()
    wait_until(rig.controller.ready, 60, lambda: f"it serves\n{rig.controller.tail()}")

    def shown(name: str, labels: str = "") -> float | None:
        line = rf'^lunkeeper_array_{name}{{array="{rig.array_name}"{labels}}} (\S+)$'
        found = re.search(line, page(port, "/metrics"), re.MULTILINE)
        return float(found[1]) if found else None

    wait_until(lambda: shown("has_standby") == 0, 60, "nobody stands by")
    second.start()
    wait_until(lambda: shown("has_standby") == 1, 60, lambda: f"one stands by\n{second.tail()}")
    assert shown("gateway_epoch") == 2  # a restart
    assert shown("takeovers_total") == shown("handovers_total") == 0
    since = shown("gateway_since_seconds", f',host="{socket.gethostname()}"')
    assert since and abs(since - time.time()) < 600
    for phase in ("shut_out", "catalogue", "targets"):
        assert (shown("takeover_seconds", f',phase="{phase}"') or 0) > 0, phase
    listed = [name for section, name, _ in docs.metrics() if section == docs.GATEWAYS]
    served = page(port, "/metrics")
    assert len(listed) > 5 and [name for name in listed if f"\n{name}{{" not in served] == []


def begin_armed(rig: Rig, serving: Machine, other: Machine, point: str, hook: str = "") -> Daemon:
    """A handover whose giver dies at the point, or runs the hook there and goes on; started anew for that."""
    environment = {"LUNKEEPER_FAIL_POINT_ONCE": str(rig.folder / f"fired-{point}")}
    environment["LUNKEEPER_FAIL_POINT"] = f"array.handover.{point}"
    if hook:
        program = rig.folder / f"hook-{point}"
        program.write_text(f"#!/bin/sh\n{hook}\n")
        program.chmod(0o755)
        environment["LUNKEEPER_FAIL_POINT"] += f":exec={program}"
    giver = serving.agent
    giver.kill()
    giver.start(**environment)
    wait_until(giver.ready, 30, lambda: f"it serves again\n{giver.tail()}")
    wait_until(lambda: stands_by(other.agent), 60, "the other one stands by")
    return handover(giver, rig.folder)


@BOTH
def test_two_commands_at_once_and_one_that_is_interrupted_do_no_harm(rig: Rig, second: Gateway) -> None:
    first, last = machines(rig, second)
    with writing(rig):
        one, two = handover(first.agent, rig.folder), handover(first.agent, rig.folder)
        ends = finish(one), finish(two)
        assert {code for code, _ in ends} == {0, 1}, ends
        rig.controller = second
        assert await_both(first, last) == (last, first)
        # It waits for the signal, or all may be over before that comes.
        told = rig.folder / "interrupted"
        command = begin_armed(rig, last, first, "stopped", hook=f"until [ -e {told} ]; do sleep 0.1; done")
        wait_until(lambda: "I/O waits" in command.log.read_text(), 60, "it is under way")
        # Not SIGINT: what a shell has put into the background, such as these tests, ignores that, and so do
        # its children. The command would wait for the giver, and the giver for the command's end.
        os.kill(command.pid, signal.SIGTERM)
        assert finish(command)[0] != 0
        told.touch()
        wait_until(last.is_gone, 60, "the giver has ended, and its tgtd")
        assert await_both(first, last) == (first, last)
        rig.controller = first.agent


@BOTH
@pytest.mark.timeout(600)
def test_killed_anywhere_the_giver_loses_nothing(rig: Rig, second: Gateway) -> None:
    serving, other = machines(rig, second)
    with writing(rig) as writer:
        for point in POINTS:
            code, said = finish(begin_armed(rig, serving, other, point))
            assert code == 1, said
            assert (rig.folder / f"fired-{point}").exists()
            assert "the agent has ended in the middle" in said
            serving, other = await_both(serving, other)
            rig.controller = serving.agent
            writer.goes_on()
            print(f"killed at {point}: the writer waited {writer.pause():.1f} s")


@BOTH
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ["begun", "released"])
def test_killed_in_the_middle_the_successor_loses_nothing(rig: Rig, second: Gateway, point: str) -> None:
    """Nobody is there to take the array, so the giver does again."""
    serving, other = machines(rig, second)
    with writing(rig) as writer:
        command = begin_armed(rig, serving, other, point, hook=f"kill -9 {second.pid}")
        wait_until(lambda: not serving.agent.running(), 60, "the giver has ended")
        serving.agent.start()
        finish(command)
        serving, other = await_both(serving, other)
        rig.controller = serving.agent
        writer.goes_on()
        print(f"the successor killed at {point}: the writer waited {writer.pause():.1f} s")


@BOTH
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ["closed", "released"])
def test_a_giver_that_freezes_in_the_middle_and_wakes_later_writes_nothing(
    rig: Rig, second: Gateway, point: str
) -> None:
    serving, other = machines(rig, second)
    with writing(rig) as writer:
        command = begin_armed(rig, serving, other, point, hook="kill -STOP $PPID")
        frozen = serving.agent.pid
        wait_until(lambda: state_of(frozen) == "T", 60, "it is frozen")
        wait_until(lambda: serves(other.agent), 60, lambda: f"the other one serves\n{other.agent.tail()}")
        writer.goes_on()
        os.kill(frozen, signal.SIGCONT)
        wait_until(serving.is_gone, 60, "the giver has ended, and its tgtd")
        finish(command)
        serving, other = await_both(serving, other)
        assert serving.agent is second
        rig.controller = second
        print(f"frozen at {point}: the writer waited {writer.pause():.1f} s")


def test_an_array_of_files_stays_where_it_is(folder: Path, plain_pool: Path) -> None:
    with Rig(folder / "files", plain_pool) as rig:
        code, said = finish(handover(rig.controller, rig.folder))
        assert code == 1
        assert "docs/shared-disks.md says how a pool moves" in said
        assert rig.controller.ready()


def test_the_command_needs_no_option_of_the_agent(rig: Rig) -> None:
    done = subprocess.run(
        [rig.binary, "array", "handover", "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "--endpoint" in done.stdout
