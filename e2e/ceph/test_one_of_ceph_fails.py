"""A part of Ceph fails beside a gateway, or is silent, under a writer: the gateway keeps the array."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.ceph import Ceph
from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.gateways import Gateway, path_of, volume_in_use
from harness.rig import Rig
from harness.volume import Volume

BOTH = pytest.mark.parametrize("second", ["both portals are in the grants"], indirect=True)
# More than the limit of an impatient conf, and less than a node waits for a command.
SILENT_SECONDS, LIMIT_SECONDS = 20, 10


@pytest.fixture(scope="module")
def ceph(folder: Path) -> Iterator[Ceph]:
    """Three OSDs, on which each object has two copies, so that any one of them may fail."""
    with Ceph(folder / "ceph", osds=3) as ceph:
        ceph.ceph("osd", "pool", "set", ceph.POOL, "size", 2)
        ceph.wait_until_clean()
        yield ceph


def nothing_moved(
    rig: Rig, second: Gateway, volume: Volume, checker: BlockChecker, portal: str, epoch: int
) -> None:
    """No error, no byte lost, at the portal and the gateway of before."""
    checker.wait_for_writes(300, seconds=60)
    checker.stop_good()
    checker.verify()
    assert path_of(rig.nodes[0].server, volume.id) == (portal, epoch)
    assert rig.controller.ready()
    assert not second.ready()
    volume.down(with_controller=True).delete()


@BOTH
@pytest.mark.parametrize("kind", ["osd", "mon", "mgr"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_one_of_its_daemons_fails_and_nothing_moves(
    rig: Rig, second: Gateway, ceph: Ceph, kind: str, how: signal.Signals
) -> None:
    volume, checker = volume_in_use(rig)
    second.start()
    wait_until(second.stands_by, 60, "the second one stands by")
    portal, moves = path_of(rig.nodes[0].server, volume.id)
    daemon = {"osd": ceph.osds[1], "mon": ceph.mon, "mgr": ceph.mgr}[kind]
    os.kill(daemon.pid, how)
    if kind == "osd" and how == signal.SIGSTOP:  # as its peers see to, 20 s and more later
        ceph.ceph("osd", "down", 1)
    checker.wait_for_writes(1000, seconds=60)
    time.sleep(5)
    checker.wait_for_writes(300, seconds=60)
    if how == signal.SIGSTOP:
        os.kill(daemon.pid, signal.SIGCONT)
    else:
        wait_until(lambda: not daemon.running(), 30, "it is dead")
        daemon.start()
    ceph.wait_until_clean()
    nothing_moved(rig, second, volume, checker, portal, moves)


def test_a_conf_that_limits_how_long_ceph_may_take_gives_no_error(
    folder: Path, plain_pool: Path, ceph: Ceph
) -> None:
    """Neither to the node nor to the agent: a write that is given up may land later."""
    conf = ceph.edited("impatient", r"\[global\]\n", f"[global]\nrados_osd_op_timeout = {LIMIT_SECONDS}\n")
    options = [f"--store=rbd:{ceph.POOL}", f"--ceph-conf={conf}"]
    with Rig(folder / "rig", plain_pool, nodes=1, split=True, array_options=options) as rig:
        volume, checker = volume_in_use(rig)
        for osd in ceph.osds:
            os.kill(osd.pid, signal.SIGSTOP)
        try:
            time.sleep(SILENT_SECONDS)
        finally:
            for osd in ceph.osds:
                os.kill(osd.pid, signal.SIGCONT)
        checker.wait_for_writes(300, seconds=60)
        checker.stop_good()
        checker.verify()
        wait_until(rig.controller.ready, 60, "it serves calls again")
        assert "timed out" not in rig.controller.log.read_text()
        volume.down(with_controller=True).delete()
