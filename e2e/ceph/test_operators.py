"""What an operator does to Ceph while an array is served, by a user of the rights in docs/ceph.md."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.ceph import Ceph
from harness.cleanup import wait_until
from harness.csi import code_of
from harness.gateways import (
    Gateway,
    await_both,
    end_whole,
    freeze_at,
    machines,
    path_of,
    serves,
    volume_in_use,
)
from harness.processes import state_of
from harness.rig import Rig
from harness.store import options_of
from harness.volume import Volume

BOTH = pytest.mark.parametrize("second", ["both portals are in the grants"], indirect=True)
USER = "--ceph-user=lunkeeper"


@pytest.fixture
def rig(folder: Path, plain_pool: Path, ceph: Ceph) -> Iterator[Rig]:
    ceph.make_client(
        "lunkeeper", "mon", "profile rbd", "mgr", "profile rbd", "osd", f"profile rbd pool={ceph.POOL}"
    )
    place = Path(tempfile.mkdtemp(dir=folder))
    options = [*options_of(ceph), USER]
    with Rig(place, plain_pool, nodes=2, split=True, array_options=options, start=False) as rig:
        yield rig


@BOTH
def test_more_placement_groups_move_nothing(rig: Rig, second: Gateway, ceph: Ceph) -> None:
    second.argv.append(USER)
    volume, checker = volume_in_use(rig)
    portal, moves = path_of(rig.nodes[0].server, volume.id)
    ceph.ceph("osd", "pool", "set", ceph.POOL, "pg_num", 16)
    ceph.ceph("osd", "pool", "set", ceph.POOL, "pgp_num", 16)
    wait_until(lambda: ceph.ask("pg", "stat")["pg_summary"]["num_pgs"] >= 16, 60, "they are split")
    ceph.wait_until_clean()
    checker.wait_for_writes(300)
    checker.stop_good()
    checker.verify()
    assert path_of(rig.nodes[0].server, volume.id) == (portal, moves)
    volume.down(with_controller=True).delete()


@BOTH
@pytest.mark.timeout(300)
def test_rights_that_are_gone_for_a_while_cost_no_error(rig: Rig, second: Gateway, ceph: Ceph) -> None:
    """They name the pool: while it has another name, the OSDs refuse the gateways everything."""
    second.argv.append(USER)
    volume, checker = volume_in_use(rig)
    first, other = machines(rig, second)
    ceph.ceph("osd", "pool", "rename", ceph.POOL, "renamed")
    try:
        time.sleep(30)
    finally:
        ceph.ceph("osd", "pool", "rename", "renamed", ceph.POOL)
    serving, _ = await_both(first, other)
    rig.controller = serving.agent
    end_whole(volume, checker)


@BOTH
@pytest.mark.timeout(300)
def test_a_quota_that_is_used_up_holds_writes_back_until_it_is_raised(
    rig: Rig, second: Gateway, ceph: Ceph
) -> None:
    second.argv.append(USER)
    volume, checker = volume_in_use(rig)
    first, other = machines(rig, second)
    ceph.ceph("osd", "pool", "set-quota", ceph.POOL, "max_objects", 1)
    try:
        wait_until(lambda: "pool(s) full" in ceph.ceph("health", "detail"), 60, "the quota is used up")
        before = checker.acknowledged()
        time.sleep(40)  # longer than a command may take
        assert checker.running()
        print(f"{checker.acknowledged() - before} writes meanwhile")
    finally:
        ceph.ceph("osd", "pool", "set-quota", ceph.POOL, "max_objects", 0)
    serving, _ = await_both(first, other)
    rig.controller = serving.agent
    end_whole(volume, checker)


def remove_lock(ceph: Ceph, volume: Volume) -> None:
    """As one takes it for that of a dead program."""
    image = next(name for name in ceph.rbd("ls", ceph.POOL).split() if name.endswith(volume.id))
    (lock,) = json.loads(ceph.rbd("lock", "ls", "--format", "json", f"{ceph.POOL}/{image}"))
    ceph.rbd("lock", "rm", f"{ceph.POOL}/{image}", lock["id"], lock["locker"])


@BOTH
@pytest.mark.timeout(300)
def test_a_lock_that_is_removed_costs_no_error(rig: Rig, second: Gateway, ceph: Ceph) -> None:
    """Ceph shuts out the client that had it, by which tgtd has the image open."""
    second.argv.append(USER)
    volume, checker = volume_in_use(rig)
    tgtd = rig.tgtd()
    for _ in range(3):
        remove_lock(ceph, volume)
        checker.wait_for_writes(300, seconds=60)
        assert checker.running(), checker.stop()
    checker.stop_good()
    checker.verify()
    assert rig.tgtd() == tgtd
    volume.down(with_controller=True).delete()


@BOTH
@pytest.mark.timeout(300)
def test_an_image_that_is_opened_anew_while_another_gateway_takes_the_array_harms_nothing(
    rig: Rig, second: Gateway, ceph: Ceph
) -> None:
    """The gateway freezes when tgtd has closed it, and opens it when another one serves."""
    second.argv.append(USER)
    volume, checker = volume_in_use(rig)
    serving, other = machines(rig, second)
    freeze_at("array.target.lun_deleted", serving, other)
    agent = serving.agent.pid
    remove_lock(ceph, volume)
    wait_until(lambda: state_of(agent) == "T", 60, "it freezes")
    wait_until(lambda: serves(other.agent), 120, other.agent.tail)
    checker.wait_for_writes(100, seconds=120)
    os.kill(agent, signal.SIGCONT)
    wait_until(serving.is_gone, 60, "the old gateway has ended, and its tgtd")
    serving, _ = await_both(serving, other)
    rig.controller = serving.agent
    checker.wait_for_writes(300, seconds=120)
    checker.stop_good()
    checker.verify()
    volume.down(with_controller=True)
    # It was open there: a client that nobody has registered is shown for 30 s after its tgtd is gone.
    wait_until(lambda: code_of(volume.delete)[0] == "OK", 60, "it is deleted", pause=1)
