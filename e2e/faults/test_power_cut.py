"""The disk of a storage host that loses its power, and with that all writes that were only in memory."""

import contextlib
import os

import pytest

from harness.checker import BlockChecker
from harness.pool import run
from harness.rig import Rig
from harness.volume import MIB, Volume

pytestmark = pytest.mark.files

WRITES = 500


@pytest.fixture(scope="module")
def rig(folder, xfs_pool):
    with Rig(folder / "power", xfs_pool) as rig:
        yield rig


@pytest.fixture
def volume(rig, request):
    volume = Volume(
        rig,
        rig.nodes[0],
        request.node.originalname,
        block=True,
        size=16 * MIB,
        parameters={"durability": request.param},
    ).up()
    yield volume
    volume.down().delete()


@pytest.fixture
def unflushed(volume):
    """A writer that never flushed and has ended."""
    checker = BlockChecker(volume, flush_every=0).start()
    checker.wait_for_writes(WRITES)
    checker.daemon.kill()
    return checker


@contextlib.contextmanager
def after_a_power_cut(rig, volume):
    """The volume's file as the disk under the pool has it now."""
    pool = rig.pool.parent
    disk, mounted = (rig.folder / f"{volume.name}.{end}" for end in ("disk", "after"))
    mounted.mkdir()
    try:
        run("cp", "--sparse=always", pool.with_suffix(".img"), disk)
        run("mount", "-o", "loop,nouuid", disk, mounted)
        try:
            yield mounted / rig.medium_of(volume).relative_to(pool)
        finally:
            run("umount", mounted)
    finally:
        disk.unlink(missing_ok=True)


@pytest.mark.parametrize("volume", ["sync"], indirect=True)
def test_a_synchronous_volume_has_every_acknowledged_write_on_the_disk(rig, volume, unflushed):
    with after_a_power_cut(rig, volume) as unflushed.device:
        unflushed.verify()


@pytest.mark.parametrize("volume", ["cached"], indirect=True)
def test_a_cached_volume_has_what_was_flushed_on_the_disk(rig, volume, unflushed):
    with open(volume.path(), "rb+") as device:
        os.fsync(device.fileno())
    with after_a_power_cut(rig, volume) as unflushed.device:
        unflushed.verify()


@pytest.mark.parametrize("volume", ["cached"], indirect=True)
def test_a_cached_volume_loses_what_was_not_flushed(rig, volume, unflushed):
    """As documented. It also shows that the two tests above can fail."""
    with (
        after_a_power_cut(rig, volume) as unflushed.device,
        pytest.raises(AssertionError, match="exit code 1"),
    ):
        unflushed.verify()
