"""An array on Ceph that outlives its gateway: real agents, tgtds and data paths."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.ceph import Ceph
from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.processes import free_port, kill_pid, listener_of
from harness.rig import CLUSTER, LIST_PORTALS, TGT_SOCKETS, Rig, Server, free_control_port
from harness.volume import MIB, Volume


class Gateway(Server):
    """A second gateway of a rig's array, which stands by as systemd has it: it is started until it serves."""

    def __init__(self, rig: Rig, options: list[str], portal: str) -> None:
        self.portal = portal
        self.control_port = free_control_port()
        self.tgt_socket = TGT_SOCKETS / f"socket.{self.control_port}"
        pool = rig.folder / "second-pool"
        pool.mkdir()
        super().__init__(
            rig,
            "second",
            "controller",
            [
                f"--cluster={CLUSTER}",
                f"--array-name={rig.array_name}",
                f"--pool={pool}",
                f"--portal={portal}",
                f"--tgt-control-port={self.control_port}",
                f"--state-dir={rig.folder}/second-state",
                *options,
            ],
        )

    def serves(self) -> bool:
        if not self.running():
            self.start()
        return self.ready()


def options_of(ceph: Ceph) -> list[str]:
    return [f"--store=rbd:{ceph.POOL}", f"--ceph-conf={ceph.conf}"]


@pytest.fixture
def rig(folder: Path, plain_pool: Path, ceph: Ceph) -> Iterator[Rig]:
    place = Path(tempfile.mkdtemp(dir=folder))
    with Rig(place, plain_pool, nodes=2, split=True, array_options=options_of(ceph), start=False) as rig:
        yield rig


@pytest.fixture
def second(rig: Rig, ceph: Ceph, request: pytest.FixtureRequest) -> Iterator[Gateway]:
    moves = request.param == "the portal moves"
    gateway = Gateway(rig, options_of(ceph), rig.portal if moves else f"127.0.0.1:{free_port()}")
    if request.param == "both portals are in the grants":
        rig.controller.argv.append(f"--peer-portal={gateway.portal}")
        gateway.argv.append(f"--peer-portal={rig.portal}")
    rig.start()
    yield gateway
    gateway.kill()
    if (tgtd := listener_of(gateway.tgt_socket, question=LIST_PORTALS)) is not None:
        kill_pid(tgtd)
    for suffix in ("", ".lock"):
        Path(f"{gateway.tgt_socket}{suffix}").unlink(missing_ok=True)


def volume_in_use(rig: Rig) -> tuple[Volume, BlockChecker]:
    volume = Volume(rig, rig.nodes[0], "v", block=True, size=16 * MIB).up(with_controller=True)
    checker = BlockChecker(volume).start()
    checker.wait_for_writes(300)
    return volume, checker


def freeze(rig: Rig) -> tuple[Server, int]:
    """Stops the gateway and its tgtd where they are; answers both, to be thawed."""
    gateway, tgtd = rig.controller, rig.tgtd()
    assert tgtd
    for pid in (gateway.pid, tgtd):
        os.kill(pid, signal.SIGSTOP)
    return gateway, tgtd


@pytest.mark.parametrize("second", ["the portal moves", "both portals are in the grants"], indirect=True)
def test_a_gateway_dies_and_a_writer_goes_on_at_the_next_one(rig: Rig, second: Gateway) -> None:
    volume, checker = volume_in_use(rig)
    second.start()
    wait_until(lambda: not second.running(), 60, "the second one sees that the first one lives")
    assert "another agent serves it, on host" in second.tail()
    checker.wait_for_writes(100)
    tgtd = rig.tgtd()
    assert tgtd
    rig.controller.kill()
    kill_pid(tgtd)
    wait_until(second.serves, 120, lambda: f"the second one serves\n{second.tail()}")
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
    first, tgtd = freeze(rig)
    wait_until(second.serves, 120, lambda: f"the second one serves\n{second.tail()}")
    checker.wait_for_writes(300, seconds=120)
    for pid in (tgtd, first.pid):
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not first.running() and not rig.tgtd(), 60, "the old gateway has ended, and its tgtd")
    checker.wait_for_writes(300, seconds=120)
    checker.stop_good()
    checker.verify()
    rig.controller = second
    volume.down(with_controller=True).delete()


@pytest.mark.parametrize("second", ["a portal of its own"], indirect=True)
def test_a_frozen_gateway_is_taken_over_and_writes_nothing_after_it_thaws(
    rig: Rig, second: Gateway
) -> None:
    frozen, there = rig.nodes
    frozen_id = frozen.id
    _, checker = volume_in_use(rig)
    first, tgtd = freeze(rig)
    # What the node has sent stays in the frozen tgtd's hands.
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
    os.kill(tgtd, signal.SIGCONT)
    wait_until(lambda: rig.tgtd() == tgtd, 60, "the old tgtd runs again")
    writer.wait_for_writes(300, seconds=120)
    time.sleep(1)  # for what it had in hand
    os.kill(first.pid, signal.SIGCONT)
    wait_until(lambda: not first.running() and not rig.tgtd(), 60, "the old gateway has ended, and its tgtd")
    assert "another gateway has taken the array" in first.log.read_text()
    writer.stop_good()
    writer.verify()
    moved.down(with_controller=True).delete()
