"""Snapshots, restores, clones and growth."""

from harness.cleanup import wait_until
from kube.writer import Writer


def test_a_restored_snapshot_has_the_data_of_its_moment(workloads):
    workloads.pod_with_claim("writer")
    workloads.shell("writer", "echo before > /data/file && sync")
    workloads.snapshot("moment", "data")
    workloads.shell("writer", "echo after > /data/file && sync")
    workloads.pod_with_claim(
        "reader",
        "restored",
        dataSource={"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "moment"},
    )
    assert workloads.shell("reader", "cat /data/file").strip() == "before"
    workloads.delete("volumesnapshot", "moment")


def test_a_clone_is_a_volume_of_its_own(workloads):
    workloads.pod_with_claim("writer")
    workloads.shell("writer", "echo shared > /data/file && sync")
    workloads.pod_with_claim("reader", "clone", dataSource={"kind": "PersistentVolumeClaim", "name": "data"})
    workloads.shell("reader", "echo changed >> /data/file && sync")
    assert workloads.shell("reader", "cat /data/file").split() == ["shared", "changed"]
    assert workloads.shell("writer", "cat /data/file").split() == ["shared"]


SIZE = "df -k /data | tail -1 | tr -s ' ' | cut -d' ' -f2"  # of the file system, in KiB


def ask_for(workloads, size):
    workloads.kubectl(
        "patch",
        "pvc",
        "data",
        *workloads.here,
        "-p",
        '{"spec": {"resources": {"requests": {"storage": "%s"}}}}' % size,
    )


def test_an_xfs_volume_grows_while_it_is_written(workloads):
    xfs = workloads.storage_class(parameters={"fsType": "xfs"})
    workloads.claim("data", storage_class=xfs, size="512Mi")
    writer = Writer(workloads, "writer", "data").goes_on()
    before = int(workloads.shell("writer", SIZE))
    ask_for(workloads, "1Gi")
    wait_until(
        lambda: int(workloads.shell("writer", SIZE)) > 1.8 * before,
        150,
        lambda: f"the file system has grown: {workloads.events('data')}",
        pause=0.5,
    )
    writer.goes_on()
    writer.stop()


def test_an_ext4_volume_has_grown_at_the_latest_when_its_pod_starts_again(workloads):
    """A mounted one grows only if the kernel lets the plugin do it, which the tests' cluster does not."""
    workloads.pod_with_claim("writer")
    workloads.shell("writer", "echo kept > /data/file && sync")
    before = int(workloads.shell("writer", SIZE))
    ask_for(workloads, "512Mi")
    (volume,) = workloads.volumes()
    wait_until(
        lambda: workloads.kubectl.get("pv", volume)["spec"]["capacity"]["storage"] == "512Mi",
        60,
        lambda: f"the volume has grown: {workloads.events('data')}",
        pause=0.2,
    )
    workloads.delete("pod", "writer")
    workloads.pod("reader", "data")
    workloads.wait_for_pod("reader")
    assert int(workloads.shell("reader", SIZE)) > 1.8 * before
    assert workloads.shell("reader", "cat /data/file").strip() == "kept"
    wait_until(
        lambda: (
            workloads.kubectl.get("pvc", "data", *workloads.here)["status"]["capacity"]["storage"] == "512Mi"
        ),
        60,
        lambda: f"the claim says so: {workloads.events('data')}",
        pause=0.5,
    )
