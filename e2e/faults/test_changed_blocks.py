"""A backup of a full copy and ten deltas restores bit for bit, at the price of what changed."""

import mmap
import os
import random
import subprocess

import pytest

from harness.backup import Image, allocated, changed
from harness.cleanup import wait_until
from harness.csi import code_of
from harness.leaks import Leaks
from harness.rig import Rig
from harness.volume import MIB, Volume

pytestmark = pytest.mark.files  # they are copied; and on Ceph nothing is discarded

BLOCK = 4096
DELTAS, CHANGES = 10, 40


@pytest.fixture
def rig(folder, xfs_pool, request):
    with Rig(folder / request.node.name[:24], xfs_pool, split=True) as rig:
        yield rig


@pytest.fixture
def volume(rig):
    volume = Volume(rig, rig.nodes[0], "data", block=True, size=64 * MIB).up(with_controller=True)
    yield volume
    volume.down(with_controller=True).delete()


def write_block(device, number, content):
    with mmap.mmap(-1, BLOCK) as block:
        block.write(content)
        os.pwrite(device, block, number * BLOCK)


def change(volume, chance):
    """Writes and discards here and there. Returns how many bytes that were, at most."""
    device = os.open(volume.target, os.O_RDWR | os.O_DIRECT)
    try:
        blocks = volume.size // BLOCK
        for _ in range(CHANGES):
            write_block(device, chance.randrange(blocks), chance.randbytes(BLOCK))
        discarded = chance.randrange(blocks - 64)
        subprocess.run(
            ["blkdiscard", f"--offset={discarded * BLOCK}", f"--length={64 * BLOCK}", volume.target],
            check=True,
            timeout=60,
        )
        os.fsync(device)
    finally:
        os.close(device)
    return (CHANGES + 64) * BLOCK


def content_of(volume):
    with open(volume.target, "rb") as device:
        return device.read(volume.size)


def grow(volume):
    volume.controller_expand(volume.size + 16 * MIB)
    volume.node_expand()


def test_a_full_copy_and_ten_deltas_restore_bit_for_bit(rig, volume):
    chance, image, client = random.Random(5), Image(), rig.controller.client
    leaks = Leaks(rig)
    with open(volume.target, "r+b", buffering=0) as device:
        device.write(chance.randbytes(8 * MIB))
    change(volume, chance)
    snapshots = [volume.snapshot("full")]
    image.copy(allocated(client, snapshots[0]), rig.pool / "snapshots" / snapshots[0], volume.size)
    assert image.content == content_of(volume)
    assert 8 * MIB <= image.copied <= 8 * MIB + (CHANGES + 1) * 64 * 1024
    for number in range(DELTAS):
        if number == 4:
            grow(volume)
        most = change(volume, chance)
        snapshots.append(volume.snapshot(f"delta-{number}"))
        ranges = changed(client, snapshots[-2], snapshots[-1])
        image.copy(ranges, rig.pool / "snapshots" / snapshots[-1], volume.size)
        assert image.content == content_of(volume), f"delta {number}: {ranges}"
        assert 0 < image.copied <= most, f"delta {number} costs {image.copied} bytes, not {most}"
    # Over all of them at once, which a program does that lost those in between.
    whole = Image()
    whole.copy(allocated(client, snapshots[0]), rig.pool / "snapshots" / snapshots[0], 64 * MIB)
    last = rig.pool / "snapshots" / snapshots[-1]
    whole.copy(changed(client, snapshots[0], snapshots[-1]), last, volume.size)
    assert whole.content == image.content

    restored = Volume(rig, rig.nodes[0], "restored", block=True, size=volume.size).up(with_controller=True)
    with open(restored.target, "r+b", buffering=0) as device:
        device.write(image.content)
        os.fsync(device.fileno())
    assert content_of(restored) == content_of(volume)
    restored.down(with_controller=True).delete()
    for snapshot in snapshots:
        client.DeleteSnapshot(snapshot_id=snapshot)
    wait_until(lambda: not leaks.found(), 5, leaks.found)


def test_a_list_goes_on_where_it_broke_off_also_after_the_controller_was_killed(rig, volume):
    chance, client = random.Random(6), rig.controller.client
    change(volume, chance)
    old = volume.snapshot("old")
    change(volume, chance)
    now = volume.snapshot("now")
    whole = changed(client, old, now)
    assert changed(client, old, now, max_results=1) == whole
    part = whole[: len(whole) // 2]
    rig.controller.kill()
    rig.controller.start()
    wait_until(rig.controller.ready, 30, rig.logs)
    client = rig.controller.client
    assert part + changed(client, old, now, offset=sum(part[-1])) == whole
    # The base of a delta was deleted meanwhile.
    client.DeleteSnapshot(snapshot_id=old)
    code, text = code_of(client.GetMetadataDelta, base_snapshot_id=old, target_snapshot_id=now)
    assert code == "NOT_FOUND" and old in text
    client.DeleteSnapshot(snapshot_id=now)
