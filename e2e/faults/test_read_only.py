"""Raw block volumes that are published read-only."""

import errno
import os

import pytest

from harness.csi import code_of
from harness.leaks import Leaks
from harness.rig import Rig
from harness.volume import MIB, Volume

SIZE = 16 * MIB


@pytest.fixture
def rig(folder, xfs_pool, request):
    with Rig(folder / request.node.name[:20], xfs_pool) as rig:
        yield rig


def write(path, data):
    """The errno of a write through the device's cache; 0 when it went well."""
    try:
        with open(path, "r+b", buffering=0) as device:
            device.write(data)
        return 0
    except OSError as error:
        return error.errno


def test_a_reader_cannot_write_and_sees_what_was_written_before(rig):
    leaks = Leaks(rig)
    volume = Volume(rig, rig.nodes[0], "raw", block=True, size=SIZE).up()
    data = os.urandom(4 * MIB)
    assert write(volume.target, data) == 0  # only in the cache so far
    volume.unpublish()

    volume.readonly = True
    volume.publish().publish()
    assert write(volume.target, b"x" * 4096) in (errno.EPERM, errno.EACCES, errno.EROFS)
    assert volume.target.read_bytes()[: len(data)] == data
    # What was still in the cache when the device was closed has reached the medium.
    volume.unpublish().unstage()
    volume.stage().publish()
    assert volume.target.read_bytes()[: len(data)] == data

    # A writer beside it opens the device, and at the reader's path nothing changes.
    other = volume.target.parent / "other"
    volume.readonly = False
    code, _ = code_of(volume.publish)
    assert code == "ALREADY_EXISTS"
    volume.publish(other)
    assert write(other, b"y" * 4096) == 0
    volume.unpublish(other).unpublish()
    volume.publish()
    assert write(volume.target, b"z" * 4096) == 0
    volume.down().delete()
    assert not leaks.found()


def test_a_reader_that_is_left_cannot_write_after_the_writer_beside_it(rig):
    volume = Volume(rig, rig.nodes[0], "left", block=True, size=SIZE).create().stage()
    other = volume.target.parent / "other"
    volume.publish(other)
    volume.readonly = True
    volume.publish()
    assert write(other, b"y" * 4096) == 0
    volume.unpublish(other)
    assert write(volume.target, b"x" * 4096) in (errno.EPERM, errno.EACCES, errno.EROFS)
    volume.down().delete()


def test_a_volume_grows_while_it_is_published_read_only(rig):
    volume = Volume(rig, rig.nodes[0], "grown", block=True, size=SIZE).create().stage()
    volume.readonly = True
    volume.publish().controller_expand(2 * SIZE).node_expand()
    assert len(volume.target.read_bytes()) == 2 * SIZE
    assert write(volume.target, b"x" * 4096) != 0
    volume.down().delete()
