"""An array on Ceph that outlives its gateway: real agents, tgtds and data paths."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import socket
import time

import pytest

from harness.checker import BlockChecker
from harness.ceph import Ceph
from harness.cleanup import wait_until
from harness.gateways import Gateway, Machine, end_whole, path_of, status_of, volume_in_use
from harness.processes import state_of
from harness.rig import Rig
from harness.volume import MIB, Volume


def first_of(rig: Rig) -> Machine:
    return Machine(rig.controller, rig.tgt_socket(0))


@pytest.mark.parametrize("second", ["the portal moves", "both portals are in the grants"], indirect=True)
def test_a_gateway_dies_and_a_writer_goes_on_at_the_next_one(rig: Rig, second: Gateway) -> None:
    volume, checker = volume_in_use(rig)
    second.start()
    wait_until(second.stands_by, 60, "the second one sees that the first one lives")
    process = second.pid
    checker.wait_for_writes(100)
    first_of(rig).die()
    wait_until(second.serves, 120, lambda: f"the second one serves\n{second.tail()}")
    assert second.pid == process  # it has watched all the time
    checker.wait_for_writes(300, seconds=120)
    counters = checker.stop_good()
    assert counters
    checker.verify()
    assert "waiting for the catalogue" not in second.log.read_text()  # its holder was shut out
    rig.controller = second
    volume.down(with_controller=True).delete()


@pytest.mark.parametrize("second", ["both portals are in the grants"], indirect=True)
def test_a_gateway_freezes_and_a_writer_goes_on_without_an_error(rig: Rig, second: Gateway) -> None:
    volume, checker = volume_in_use(rig)
    first = first_of(rig)
    frozen = first.freeze()
    wait_until(second.serves, 120, lambda: f"the second one serves\n{second.tail()}")
    checker.wait_for_writes(300, seconds=120)
    wait_until(
        lambda: re.search(r"was shut out after \d+\.\d s of silence", status_of(second)), 30, "it is told"
    )
    assert path_of(rig.nodes[0].server, volume.id) == (second.portal, 1)
    first.thaw(frozen)
    wait_until(first.is_gone, 60, "the old gateway has ended, and its tgtd")
    checker.wait_for_writes(300, seconds=120)
    checker.stop_good()
    checker.verify()
    rig.controller = second
    volume.down(with_controller=True).delete()


@dataclasses.dataclass
class TakenOver:
    """A frozen gateway whose array another one has taken, with what its node had sent in its hands."""

    first: Machine
    agent: int
    tgtd: int
    moved: Volume  # the volume, on another node and at the other gateway
    writer: BlockChecker  # there


def taken_over(rig: Rig, second: Gateway) -> TakenOver:
    frozen, there = rig.nodes
    frozen_id = frozen.id
    _, checker = volume_in_use(rig)
    first = first_of(rig)
    agent, tgtd = first.freeze()
    frozen.server.kill()
    frozen.datapath.kill()
    wait_until(lambda: not checker.running(), 60, "the writer gets an error")
    wait_until(second.serves, 120, lambda: f"the second one serves\n{second.tail()}")
    rig.controller = second
    rig.fence(frozen_id)
    moved = Volume(rig, there, "v", block=True, size=16 * MIB).create().controller_publish().stage().publish()
    checker.verify(moved)
    writer = BlockChecker(moved).start()
    writer.wait_for_writes(2000, seconds=120)
    return TakenOver(first, agent, tgtd, moved, writer)


@pytest.mark.parametrize("second", ["a portal of its own"], indirect=True)
def test_a_frozen_gateway_is_taken_over_and_writes_nothing_after_it_thaws(
    rig: Rig, second: Gateway
) -> None:
    it = taken_over(rig, second)
    os.kill(it.tgtd, signal.SIGCONT)
    wait_until(lambda: it.first.tgtd() == it.tgtd, 60, "the old tgtd runs again")
    it.writer.wait_for_writes(300, seconds=120)
    time.sleep(1)  # for what it had in hand
    os.kill(it.agent, signal.SIGCONT)
    wait_until(it.first.is_gone, 60, "the old gateway has ended, and its tgtd")
    assert "another gateway has taken the array" in it.first.agent.log.read_text()
    it.writer.stop_good()
    it.writer.verify()
    it.moved.down(with_controller=True).delete()


@pytest.mark.parametrize("second", ["both portals are in the grants"], indirect=True)
def test_a_gateway_that_ceph_does_not_answer_ends_when_another_one_serves_and_not_before(
    rig: Rig, second: Gateway, ceph: Ceph
) -> None:
    """It answers nodes' pings, and carries out nothing: they would leave it only after 30 s."""
    volume, checker = volume_in_use(rig)
    first = first_of(rig)
    host, port = second.portal.split(":")
    (osd,) = ceph.osds
    # At a portal that was a gateway's, and is another program's.
    stranger = socket.create_server((host, 0))
    rig.controller.kill()
    rig.controller.argv.append(f"--peer-portal={host}:{stranger.getsockname()[1]}")
    rig.controller.start()
    wait_until(rig.controller.ready, 60, "it serves")
    os.kill(osd.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: not rig.controller.ready(), 60, "it knows that it may lose the array")
        time.sleep(2)  # in which it would have looked for another one
        assert first.agent.running()
        assert first.tgtd()
        with socket.create_server((host, int(port))):  # as the other one's tgtd
            wait_until(first.is_gone, 60, "it has ended, and its tgtd")
        assert state_of(osd.pid) == "T"
    finally:
        os.kill(osd.pid, signal.SIGCONT)
    assert "another one has begun to serve" in first.agent.log.read_text()
    rig.start()
    end_whole(volume, checker)


@pytest.mark.parametrize("second", ["both portals are in the grants"], indirect=True)
def test_one_that_cannot_serve_leaves_the_array_to_one_that_can(rig: Rig, second: Gateway) -> None:
    """It is started again and again, as by systemd."""
    volume, checker = volume_in_use(rig)
    second.start()
    wait_until(second.stands_by, 60, "the second one stands by")
    first = first_of(rig)
    host, port = second.portal.split(":")

    def first_serves() -> bool:
        if not second.running():
            second.start()
        return rig.controller.ready()

    with socket.create_server((host, int(port))):  # another program, which takes connections and says nothing
        first.die()
        wait_until(lambda: "no portal can be opened" in second.log.read_text(), 60, second.tail)
        rig.controller.start()
        wait_until(first_serves, 60, lambda: f"{second.tail()}\n{rig.controller.tail()}")
        end_whole(volume, checker)


@pytest.mark.parametrize("second", ["both portals are in the grants"], indirect=True)
def test_one_that_crashes_at_each_start_leaves_the_array_to_one_that_can_serve(
    rig: Rig, second: Gateway
) -> None:
    """It cannot say so, and each start renews its record."""
    volume, checker = volume_in_use(rig)
    crash = {"LUNKEEPER_FAIL_POINT": "array.tgtd.put_back"}
    second.start(**crash)
    wait_until(second.stands_by, 60, "the second one stands by")
    first = first_of(rig)

    def first_serves() -> bool:
        if not second.running():
            second.start(**crash)
        return rig.controller.ready()

    first.die()
    wait_until(lambda: not second.running(), 60, second.tail)
    rig.controller.start()
    wait_until(first_serves, 60, lambda: f"{second.tail()}\n{rig.controller.tail()}")
    wait_until(second.stands_by, 60, second.tail)
    assert "has ended at each start before it answered calls" in second.log.read_text()
    end_whole(volume, checker)


@pytest.mark.parametrize("second", ["both portals are in the grants"], indirect=True)
def test_one_that_no_monitor_answers_does_not_keep_the_array(rig: Rig, second: Gateway, ceph: Ceph) -> None:
    """It can take the record, and cannot shut out the one before."""
    volume, checker = volume_in_use(rig)
    second.start()
    wait_until(second.stands_by, 60, "the second one stands by")
    os.kill(ceph.mon.pid, signal.SIGSTOP)
    try:
        first_of(rig).die()
        wait_until(lambda: "and gives it away" in second.log.read_text(), 120, second.tail)
        wait_until(lambda: not second.running(), 60, "it has ended")
    finally:
        os.kill(ceph.mon.pid, signal.SIGCONT)
    assert "shut out client" in second.log.read_text()
    wait_until(second.serves, 120, lambda: f"it serves\n{second.tail()}")
    checker.wait_for_writes(300, seconds=120)
    checker.stop_good()
    checker.verify()
    rig.controller = second
    volume.down(with_controller=True).delete()


@pytest.mark.parametrize("second", ["a portal of its own"], indirect=True)
def test_one_that_stands_by_ends_when_it_is_told_to(rig: Rig, second: Gateway) -> None:
    second.start()
    wait_until(second.stands_by, 60, "the second one stands by")
    assert second.stop() == 0
    assert "stopped while it stood by" in second.tail()
    assert rig.controller.ready()
