"""An array whose volumes are RBD images, on a real Ceph: one gateway."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness import places
from harness.ceph import Ceph
from harness.cleanup import wait_until
from harness.processes import free_port
from harness.rig import Rig
from harness.volume import MIB, Volume, from_snapshot

CONTRACT = places.BUILD / "devices/array/tgt/rbd_array_test"


@pytest.mark.timeout(1000)
def test_the_array_keeps_its_promises_on_ceph(ceph: Ceph) -> None:
    # With the rights that docs/ceph.md gives, and no more.
    rights = ("mon", "profile rbd", "mgr", "profile rbd", "osd", f"profile rbd pool={ceph.POOL}")
    ceph.make_client("lunkeeper", *rights)
    done = subprocess.run(
        [CONTRACT, "-d", "yes"],
        env={**os.environ, "LUNKEEPER_CEPH_CONF": str(ceph.conf), "LUNKEEPER_CEPH_USER": "lunkeeper"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-5000:]


def test_a_volume_lives_on_ceph_behind_the_real_data_path(
    folder: Path, plain_pool: Path, ceph: Ceph
) -> None:
    with Rig(folder / "rig", plain_pool, array_options=store_options(ceph)) as rig:
        (node,) = rig.nodes
        volume = Volume(rig, node, "v", fs="ext4").up()
        data = os.urandom(8 * MIB)
        volume.write_file("data", data)
        snapshot = volume.snapshot("s")
        volume.write_file("data", bytes(len(data)))
        restored = Volume(rig, node, "r", fs="ext4", source=from_snapshot(snapshot)).up()
        assert restored.path().read_bytes() == data
        assert volume.path().read_bytes() == bytes(len(data))
        for each in (restored, volume):
            each.down()
        volume.controller_expand(volume.size + 64 * MIB)
        volume.stage().publish()
        assert os.statvfs(volume.target).f_blocks * 4096 > 320 * MIB
        rig.controller.stop()  # and tgtd goes on
        rig.start()
        volume.write_file("again", data)
        volume.down()
        for each in (restored, volume):
            each.delete()
        rig.controller.client.DeleteSnapshot(snapshot_id=snapshot)
        # What a clone needed when it was deleted goes at the next look.
        wait_until(lambda: rig.array_name not in ceph.rbd("ls", ceph.POOL), 90, "no image is left", 1)


def store_options(ceph: Ceph, **other: object) -> list[str]:
    options = {"store": f"rbd:{ceph.POOL}", "ceph_conf": ceph.conf, **other}
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


def no_monitor(ceph: Ceph) -> list[str]:
    return store_options(
        ceph, ceph_conf=ceph.edited("away", r"v2:127.0.0.1:\d+", f"v2:127.0.0.1:{free_port()}")
    )


def wrong_key(ceph: Ceph) -> list[str]:
    ceph.make_client("wrong", "mon", "profile rbd", "osd", "profile rbd")
    key = subprocess.run(["ceph-authtool", "--gen-print-key"], capture_output=True, text=True, check=True)
    (ceph.folder / "client.wrong.keyring").write_text(f"[client.wrong]\n\tkey = {key.stdout}")
    return store_options(ceph, ceph_user="wrong")


def no_key(ceph: Ceph) -> list[str]:
    return store_options(ceph, ceph_user="nobody")


def small_right(ceph: Ceph) -> list[str]:
    ceph.make_client("reader", "mon", "profile rbd", "osd", "profile rbd-read-only")
    return store_options(ceph, ceph_user="reader")


def no_pool(ceph: Ceph) -> list[str]:
    return store_options(ceph, store="rbd:absent")


def no_conf(ceph: Ceph) -> list[str]:
    return store_options(ceph, ceph_conf="/absent/ceph.conf")


def cache_on(ceph: Ceph) -> list[str]:
    return store_options(ceph, ceph_conf=ceph.edited("cache", "rbd_cache = false\n", ""))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (no_monitor, "no monitor has answered; see that the mon_host"),
        (wrong_key, "the key is missing or wrong, or its rights are too small"),
        (no_key, "the key is missing or wrong"),
        (small_right, "`ceph auth caps client.reader mon 'profile rbd'"),
        (no_pool, "for a new array, `ceph osd pool create absent && rbd pool init absent`"),
        (no_conf, "name the cluster's conf with --ceph-conf"),
        (cache_on, "put `rbd_cache = false` into its section [client]"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(
    folder: Path, plain_pool: Path, ceph: Ceph, wrong, said: str
) -> None:
    rig = Rig(folder / wrong.__name__, plain_pool, array_options=wrong(ceph), start=False)
    try:
        before = ceph.objects()
        done = subprocess.run(rig.controller.argv, capture_output=True, text=True, timeout=60)
        assert done.returncode != 0
        assert said in done.stdout + done.stderr
        # Ceph itself may still be trimming what other tests have deleted.
        assert set(ceph.objects()) <= set(before)
    finally:
        rig.close()


def test_a_ceph_of_a_test_leaves_nothing_and_stands_beside_others(folder: Path, ceph: Ceph) -> None:
    for _ in range(2):
        with Ceph(folder / "beside") as other:
            other.rbd("create", "--size", "1M", f"{other.POOL}/x")
            pids = [daemon.pid for daemon in other.daemons()]
        assert not (folder / "beside").exists()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert "x" not in ceph.rbd("ls", ceph.POOL).split()
