"""Events on claims and pods say what a volume meets, and when that is over."""

import os
import shutil
import subprocess

import grpc
import pytest

from agent.coordinated import CoordinatedRig
from harness import pool
from harness.cleanup import wait_until
from harness.faults import repeat
from harness.volume import MIB, Volume


@pytest.fixture(scope="module")
def rig(folder, module_cleanup):
    small = pool.xfs_pool(folder / "small", module_cleanup, size="512M")
    with CoordinatedRig(folder / "events", small) as rig:
        yield rig


def said(rig, name):
    """{(kind, reason)} of the claim and the pod of this name."""
    events = rig.api.get("/apis/events.k8s.io/v1/events")["items"]
    return {
        (each["regarding"]["kind"], each["reason"]) for each in events if each["regarding"]["name"] == name
    }


def both(reason):
    return {("PersistentVolumeClaim", reason), ("Pod", reason)}


def used(rig, name, **options):
    return rig.up(Volume(rig, rig.nodes[0], name, **options))


def test_a_file_system_that_shut_itself_down_is_said(rig):
    """Of an XFS the mount table shows nothing."""
    volume = used(rig, "shut", fs="xfs")
    subprocess.run(["xfs_io", "-x", "-c", "shutdown", volume.target], check=True)
    wait_until(
        lambda: said(rig, "shut") == both("FilesystemReadOnly"), 30, lambda: f"said: {said(rig, 'shut')}"
    )
    with pytest.raises(grpc.RpcError) as lost:
        # A container that starts has a copy of the mounts for a moment.
        repeat(volume.down, 60, on=[grpc.StatusCode.FAILED_PRECONDITION])
    assert lost.value.code() == grpc.StatusCode.DATA_LOSS
    volume.down().up()
    wait_until(lambda: said(rig, "shut") >= both("VolumeWell"), 60, lambda: f"said: {said(rig, 'shut')}")
    volume.down().delete()


def test_a_full_pool_is_said_on_the_claims_of_its_thin_volumes(rig):
    thin = used(rig, "thin", block=True, size=16 * MIB)
    thick = used(rig, "thick", block=True, size=16 * MIB, parameters={"provisioning": "thick"})
    filler = rig.pool.parent / "filler"
    try:
        with open(filler, "wb") as out:
            os.posix_fallocate(out.fileno(), 0, shutil.disk_usage(rig.pool).free - 8 * MIB)
        wait_until(lambda: said(rig, "thin") == both("PoolFull"), 60, lambda: f"said: {said(rig, 'thin')}")
    finally:
        filler.unlink()
    wait_until(lambda: said(rig, "thin") >= both("VolumeWell"), 60, lambda: f"said: {said(rig, 'thin')}")
    assert said(rig, "thick") == set()
    thin.down().delete()
    thick.down().delete()
