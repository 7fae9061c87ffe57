"""CSI's volume health tells of each fault while it lasts, and of nothing else."""

import os
import shutil
import signal
import subprocess
import threading

import grpc
import pytest

from harness import places, pool
from harness.cleanup import wait_until
from harness.rig import Rig
from harness.volume import MIB, Volume

CSI = places.protocol("csi.v1.csi_pb2")
WELL = []


@pytest.fixture(scope="module")
def rig(folder, module_cleanup):
    small = pool.xfs_pool(folder / "small", module_cleanup, size="512M")
    with Rig(folder / "health", small) as rig:
        yield rig


def said(entries):
    """[(status, reason)], each with a sentence for people."""
    assert all(len(entry.message) > 20 for entry in entries), entries
    return [(entry.status, entry.reason) for entry in entries]


def on_node(volume):
    asked = {"volume_id": volume.id, "volume_publish_path": str(volume.target)}
    health = volume.node.client.NodeGetVolumeHealth(**asked).volume_health
    assert health.volume_id == volume.id
    return said(health.health_statuses)


def storage(volume):
    return said(volume.node.client.NodeGetStorageHealth().backend_health)


def at_controller(volume):
    health = volume.controller.ControllerGetVolumeHealth(volume_id=volume.id).volume_health
    listed = volume.controller.ControllerListVolumeHealth().entries
    of_it = [entry for entry in listed if entry.volume_id == volume.id]
    assert bool(of_it) == bool(health.health_statuses), "it is listed when it is not well"
    return said(health.health_statuses)


def assert_well(volume):
    assert on_node(volume) == storage(volume) == at_controller(volume) == WELL


def read(path):
    """A direct read, which waits for the target."""
    subprocess.run(["dd", f"if={path}", "of=/dev/null", "bs=4096", "count=1", "iflag=direct"], check=False)


def test_a_target_that_is_silent_is_reconnecting_until_it_answers(rig):
    volume = Volume(rig, rig.nodes[0], "silent", block=True, size=16 * MIB).up()
    assert_well(volume)
    reader = threading.Thread(target=read, args=[volume.target])
    tgtd = rig.tgtd()
    os.kill(tgtd, signal.SIGSTOP)
    try:
        reader.start()
        wait_until(lambda: on_node(volume), 60, "it is noticed")
        assert on_node(volume) == [(CSI.DEGRADED, "Reconnecting")]
        assert storage(volume) == [(CSI.STORAGE_UNREACHABLE, "ArrayNotAnswering")]
    finally:
        os.kill(tgtd, signal.SIGCONT)
        reader.join()
    wait_until(lambda: on_node(volume) == storage(volume) == WELL, 60, "it is well again")
    volume.down().delete()


def test_a_data_path_that_hangs_is_told_of_at_once(rig):
    volume = Volume(rig, rig.nodes[0], "hanging", block=True, size=16 * MIB).up()
    supervisor = volume.node.datapath.pid
    os.kill(supervisor, signal.SIGSTOP)
    try:
        # Without waiting for the caller's deadline, which the test's client sets to a minute.
        assert on_node(volume) == [(CSI.INACCESSIBLE, "DataPathNotAnswering")]
        assert storage(volume) == [(CSI.STORAGE_UNREACHABLE, "DataPathNotAnswering")]
    finally:
        os.kill(supervisor, signal.SIGCONT)
    wait_until(lambda: on_node(volume) == storage(volume) == WELL, 60, "it is well again")
    volume.down().delete()


def test_a_volume_unmounted_by_hand_is_not_mounted(rig):
    volume = Volume(rig, rig.nodes[0], "unmounted", fs="ext4", size=64 * MIB).up()
    subprocess.run(["umount", volume.target], check=True)
    assert on_node(volume) == [(CSI.INACCESSIBLE, "NotMounted")]
    volume.publish()
    assert_well(volume)
    volume.down().delete()


def test_a_fenced_device_is_inaccessible_and_says_why(rig):
    volume = Volume(rig, rig.nodes[0], "fenced", block=True, size=16 * MIB).up()
    node = rig.nodes[0].id
    rig.fence(node, [volume.id])
    try:
        wait_until(lambda: on_node(volume) == [(CSI.INACCESSIBLE, "Fenced")], 60, lambda: on_node(volume))
        assert at_controller(volume) == WELL, "another node can have it"
    finally:
        rig.unfence(node)
    volume.down().up()
    assert_well(volume)
    volume.down().delete()


def test_a_file_system_that_met_an_error_is_read_only(rig):
    volume = Volume(rig, rig.nodes[0], "damaged", fs="ext4", size=64 * MIB).up()
    assert_well(volume)
    # As after an error that ext4 finds itself; it goes by errors=remount-ro then.
    subprocess.run(["mount", "-o", "remount,abort", volume.staging], check=False)
    wait_until(lambda: on_node(volume) == [(CSI.DEGRADED, "FilesystemReadOnly")], 20, lambda: on_node(volume))
    # Nobody knows what it did not write: said once, and all is undone.
    with pytest.raises(grpc.RpcError) as lost:
        volume.down()
    assert lost.value.code() == grpc.StatusCode.DATA_LOSS
    volume.down().up()
    assert_well(volume)
    volume.down().delete()


def test_an_xfs_that_has_shut_down_is_mounted_anew_for_the_next_pod(rig):
    """Kubelet unstages nothing between two pods of a rollout."""
    volume = Volume(rig, rig.nodes[0], "shut", fs="xfs").up()
    subprocess.run(["xfs_io", "-x", "-c", "shutdown", volume.target], check=True)
    volume.unpublish().publish()
    volume.path().write_bytes(b"it can be written again")
    assert_well(volume)
    volume.unpublish()
    with pytest.raises(grpc.RpcError) as lost:
        volume.unstage()
    assert lost.value.code() == grpc.StatusCode.DATA_LOSS
    volume.unstage().delete()


@pytest.mark.files
def test_thin_volumes_of_a_full_pool_are_degraded(rig):
    volume = Volume(rig, rig.nodes[0], "thin", block=True, size=16 * MIB).up()
    thick = Volume(
        rig, rig.nodes[0], "thick", block=True, size=16 * MIB, parameters={"provisioning": "thick"}
    ).create()
    filler = rig.pool.parent / "filler"
    try:
        with open(filler, "wb") as out:
            os.posix_fallocate(out.fileno(), 0, shutil.disk_usage(rig.pool).free - 8 * MIB)
        assert at_controller(volume) == [(CSI.DEGRADED, "PoolFull")]
        assert at_controller(thick) == WELL
        assert on_node(volume) == WELL
    finally:
        filler.unlink()
    # XFS frees the space of a deleted file a moment later.
    wait_until(lambda: shutil.disk_usage(rig.pool).free > 64 * MIB, 20, "there is room again")
    assert at_controller(volume) == WELL
    volume.down().delete()
    thick.delete()
