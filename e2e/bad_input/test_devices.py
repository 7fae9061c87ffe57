"""A wrong device: with foreign data, another serial, or another size. Nothing is formatted or mounted."""

import hashlib
import pathlib
import struct
import subprocess

import pytest

from harness.cleanup import wait_until
from harness.csi import capability, code_of
from harness.leaks import Leaks
from harness.rig import Rig
from harness.volume import MIB, SIZE, Volume


@pytest.fixture(scope="module")
def rig(folder, xfs_pool):
    with Rig(folder / "devices", xfs_pool) as rig:
        yield rig


def at(offset, data):
    def write(path):
        with open(path, "r+b", buffering=0) as device:
            device.seek(offset, 2 if offset < 0 else 0)
            device.write(data)

    return write


# One Linux partition from sector 2048 on, and the signature.
MBR = (
    bytes(446)
    + bytes([0, 0, 2, 0, 0x83, 0xFF, 0xFF, 0xFF])
    + struct.pack("<II", 2048, 65536)
    + bytes(48)
    + b"\x55\xaa"
)

FOREIGN = {
    "a partition table": at(0, MBR),
    "an LVM label": at(512, b"LABELONE" + bytes(16) + b"LVM2 001" + bytes(480)),
    "swap": lambda path: subprocess.run(["mkswap", path], check=True, capture_output=True),
    "another file system": lambda path: subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True),
    "unknown bytes at the start": at(4096, b"somebody's data".ljust(512)),
    "unknown bytes at the end": at(-4096, b"somebody's data".ljust(512)),
}


def digest(path):
    return hashlib.blake2b(pathlib.Path(path).read_bytes()).digest()


@pytest.mark.parametrize("content", FOREIGN)
def test_a_device_with_somebodys_data_is_never_formatted(rig, content):
    leaks = Leaks(rig)
    volume = Volume(rig, rig.nodes[0], content.replace(" ", "-").replace("'", ""), block=True).up()
    FOREIGN[content](volume.path())
    before = digest(volume.path())
    volume.unpublish().unstage()

    volume.capability = capability(fs="xfs")
    code, text = code_of(volume.stage)
    assert code == "FAILED_PRECONDITION", f"{code}: {text}"
    assert volume.id in text and len(text) > 40, text
    volume.unstage()

    volume.capability = capability(block=True)
    volume.stage().publish()
    assert digest(volume.path()) == before
    volume.down().delete()
    assert not leaks.found()


@pytest.mark.parametrize("key, value", [("serial", "another-serial"), ("sizeBytes", str(4 * SIZE))])
def test_a_lun_with_another_serial_or_too_small_is_refused(rig, key, value):
    leaks = Leaks(rig)
    volume = Volume(rig, rig.nodes[0], f"wrong-{key.lower()}").create().controller_publish()
    volume.publish_context[key] = value
    code, text = code_of(volume.stage)
    assert code == "FAILED_PRECONDITION", f"{code}: {text}"
    assert volume.id in text
    volume.unstage().controller_unpublish().delete()
    assert not leaks.found()


@pytest.mark.parametrize(
    "key, value, codes",
    [
        ("chapSecret", "not-the-secret-1", {"PERMISSION_DENIED", "FAILED_PRECONDITION"}),
        (
            "target",
            "iqn.2026-11.io.lunkeeper:no-such-target",
            {"PERMISSION_DENIED", "FAILED_PRECONDITION", "INVALID_ARGUMENT"},
        ),
        ("portal", "127.0.0.1:1", {"UNAVAILABLE", "DEADLINE_EXCEEDED"}),
        ("portal", "not a portal", {"INVALID_ARGUMENT"}),
        ("generation", "-1", {"INVALID_ARGUMENT"}),
    ],
    ids=["wrong-secret", "no-target", "nobody-there", "no-portal", "no-generation"],
)
def test_a_publish_context_that_leads_nowhere_is_refused(rig, request, key, value, codes):
    leaks = Leaks(rig)
    volume = Volume(rig, rig.nodes[0], request.node.callspec.id).create().controller_publish()
    good = volume.publish_context[key]
    volume.publish_context[key] = value
    code, text = code_of(lambda: volume.stage(seconds=5))
    assert code in codes, f"{code}: {text}"
    assert key != "chapSecret" or (value not in text and good not in text), "a secret in an error"
    # The call may still run when its caller has given up.
    wait_until(lambda: code_of(volume.unstage)[0] == "OK", 45, "it can be unstaged")
    volume.controller_unpublish().delete()
    assert not leaks.found()


def test_another_volumes_context_is_refused(rig):
    mine = Volume(rig, rig.nodes[0], "mine", block=True, size=16 * MIB).create().controller_publish()
    other = Volume(rig, rig.nodes[0], "other", block=True, size=16 * MIB).create().controller_publish()
    kept, mine.publish_context = mine.publish_context, other.publish_context
    code, text = code_of(mine.stage)
    assert code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION"), f"{code}: {text}"
    mine.publish_context = kept
    for volume in (mine, other):
        volume.unstage().controller_unpublish().delete()
