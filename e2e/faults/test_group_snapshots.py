"""Snapshots of several volumes at one moment, while writers on several nodes depend on each other."""

import contextlib
import os
import pathlib
import subprocess

import pytest

from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.csi import code_of
from harness.dependent_writers import DependentWriters, broken
from harness.groups import delete_group, group_in_time, group_of, volume_on_each_node
from harness.leaks import Leaks
from harness.rig import Rig
from harness.volume import MIB, Volume, from_snapshot

pytestmark = pytest.mark.files

ROUNDS = int(os.environ.get("GROUP_ROUNDS", "20"))
# Of those, the part that must succeed at once: a barrier gives up when a busy disk would make it too long.
AT_LEAST = 0.2


@pytest.fixture
def rig(folder, xfs_pool, request):
    with Rig(folder / request.node.name[:24], xfs_pool, nodes=3, split=True) as rig:
        yield rig


@pytest.fixture
def volumes(rig):
    with volume_on_each_node(rig) as made:
        yield made


def written_by(process):
    """Bytes, by all its threads."""
    lines = pathlib.Path(f"/proc/{process}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes:"))


@contextlib.contextmanager
def raw_volume(rig, number):
    node = rig.nodes[number % len(rig.nodes)]
    volume = Volume(rig, node, f"of-many-{number}", block=True, size=64 * MIB).up(with_controller=True)
    yield volume
    volume.down(with_controller=True).delete()


@contextlib.contextmanager
def load(volumes, *options):
    """Other writes to the same volumes, behind the records, so that there is always something dirty."""
    with subprocess.Popen(
        [
            "fio",
            "--name=load",
            f"--filename={':'.join(str(volume.target) for volume in volumes)}",
            "--ioengine=io_uring",
            "--direct=1",
            "--rw=randwrite",
            "--bs=16k",
            "--offset=16m",
            "--size=32m",
            "--iodepth=6",
            "--runtime=3600",
            "--time_based",
            "--output=/dev/null",
            "--thread",
            *options,
        ]
    ) as running:
        try:
            wait_until(lambda: written_by(running.pid) > 32 * MIB * len(volumes), 60, "the load writes")
            yield
        finally:
            running.terminate()


@pytest.mark.timeout(900 + 10 * ROUNDS)
def test_no_group_has_a_later_write_without_the_earlier_one(rig, volumes):
    leaks = Leaks(rig)
    taken = 0
    with load(volumes, "--rate_iops=1000"), DependentWriters(volumes) as writers:
        for number in range(ROUNDS):
            writers.wait_for_records(20)
            group, files = group_of(rig, volumes, f"round-{number}")
            if group is None:
                continue
            taken += 1
            assert not (found := broken(files)), f"round {number}: {found[:5]}"
            delete_group(rig, group)
        writers.wait_for_records(20)
    print(f"{taken} of {ROUNDS} groups taken, {sum(writers.written)} records")
    assert taken >= AT_LEAST * ROUNDS
    wait_until(lambda: not leaks.found(), 5, leaks.found)


@pytest.mark.timeout(400)
def test_a_group_is_made_of_volumes_that_are_written_to_as_fast_as_they_go(rig):
    """So fast that a disk does not keep pace: only because they are slowed down for a moment."""
    with contextlib.ExitStack() as stack:
        volumes = [stack.enter_context(raw_volume(rig, number)) for number in range(10)]
        stack.enter_context(load(volumes, "--bs=4k", "--size=48m", "--iodepth=64"))
        writers = stack.enter_context(DependentWriters(volumes[:3]))
        writers.wait_for_records(20)
        group, files = group_in_time(rig, volumes, "busy")
        assert not (found := broken(files)), found[:5]
        delete_group(rig, group)
        writers.wait_for_records(20)  # nothing is slow for ever


def test_without_the_barrier_the_rule_is_broken(rig, volumes):
    """Snapshots one after the other: so the test above can fail."""
    found = []
    with DependentWriters(volumes) as writers:
        for number in range(20):
            writers.wait_for_records(5)
            ids = [volume.snapshot(f"single-{number}-{volume.name}") for volume in volumes]
            found = broken([rig.pool / "snapshots" / id for id in ids])
            for id in ids:
                rig.controller.client.DeleteSnapshot(snapshot_id=id)
            if found:
                return
    pytest.fail("snapshots taken one after the other were consistent 20 times: does the test see anything?")


def test_a_controller_that_dies_in_the_barrier_does_not_stop_the_volumes(rig, volumes):
    """Nobody starts it again, and the I/O goes on."""
    checker = BlockChecker(volumes[0], blocks=256).start()
    rig.controller.kill()
    rig.controller.start(LUNKEEPER_FAIL_POINT="array.barrier.begun")
    wait_until(rig.controller.ready, 30, rig.logs)
    code, _ = code_of(
        rig.controller.client.CreateVolumeGroupSnapshot,
        name="dies",
        source_volume_ids=[volume.id for volume in volumes],
    )
    assert code == "UNAVAILABLE"
    wait_until(lambda: not rig.controller.running(), 10, "it died")
    checker.wait_for_writes(500, 120)
    rig.controller.start()
    wait_until(rig.controller.ready, 30, rig.logs)
    assert checker.stop()[0] == 0
    group, files = group_in_time(rig, volumes, "dies")
    assert all(file.exists() for file in files)
    delete_group(rig, group)


def test_a_volume_is_restored_from_a_group(rig, volumes):
    with open(volumes[0].target, "r+b", buffering=0) as device:
        device.write(b"before".ljust(512))
        os.fsync(device.fileno())
    group, _ = group_in_time(rig, volumes, "restored")
    with open(volumes[0].target, "r+b", buffering=0) as device:
        device.write(b"after".ljust(512))
        os.fsync(device.fileno())
    (member,) = [each for each in group.snapshots if each.source_volume_id == volumes[0].id]
    assert member.group_snapshot_id == group.group_snapshot_id and member.ready_to_use
    code, text = code_of(rig.controller.client.DeleteSnapshot, snapshot_id=member.snapshot_id)
    assert code == "INVALID_ARGUMENT" and group.group_snapshot_id in text
    source = from_snapshot(member.snapshot_id)
    copy = Volume(rig, rig.nodes[1], "copy", block=True, size=64 * MIB, source=source)
    copy.up(with_controller=True)
    with open(copy.target, "rb") as device:
        assert device.read(6) == b"before"
    delete_group(rig, group)  # a restored volume is a volume of its own
    copy.down(with_controller=True).delete()
