"""What an operator does to Ceph while an array is served, by a user of the rights in docs/ceph.md."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.ceph import Ceph
from harness.cleanup import wait_until
from harness.gateways import Gateway, await_both, end_whole, machines, path_of, volume_in_use
from harness.rig import Rig
from harness.store import options_of

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
