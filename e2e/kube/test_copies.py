"""Snapshots, restores, clones and growth."""

from harness.cleanup import wait_until
from kube.writer import Writer


def test_a_restored_snapshot_has_the_data_of_its_moment(workloads):
    workloads.claim("data")
    workloads.pod("writer", "data")
    workloads.wait_for_pod("writer")
    workloads.shell("writer", "echo before > /data/file && sync")
    workloads.snapshot("moment", "data")
    workloads.shell("writer", "echo after > /data/file && sync")
    workloads.claim("restored", dataSource={"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "moment"})
    workloads.pod("reader", "restored")
    workloads.wait_for_pod("reader")
    assert workloads.shell("reader", "cat /data/file").strip() == "before"
    workloads.delete("volumesnapshot", "moment")


def test_a_clone_is_a_volume_of_its_own(workloads):
    workloads.claim("data")
    workloads.pod("writer", "data")
    workloads.wait_for_pod("writer")
    workloads.shell("writer", "echo shared > /data/file && sync")
    workloads.claim("clone", dataSource={"kind": "PersistentVolumeClaim", "name": "data"})
    workloads.pod("reader", "clone")
    workloads.wait_for_pod("reader")
    workloads.shell("reader", "echo changed >> /data/file && sync")
    assert workloads.shell("reader", "cat /data/file").split() == ["shared", "changed"]
    assert workloads.shell("writer", "cat /data/file").split() == ["shared"]


def test_an_xfs_volume_grows_while_it_is_written(workloads):
    xfs = workloads.storage_class(parameters={"fsType": "xfs"})
    workloads.claim("data", storage_class=xfs, size="512Mi")
    writer = Writer(workloads, "writer", "data").goes_on()
    size = "df -k /data | tail -1 | tr -s ' ' | cut -d' ' -f2"
    before = int(workloads.shell("writer", size))
    workloads.kubectl("patch", "pvc", "data", *workloads.here, "-p", '{"spec": {"resources": {"requests": {"storage": "1Gi"}}}}')
    wait_until(lambda: int(workloads.shell("writer", size)) > 1.8 * before, 150,
               lambda: f"the file system has grown: {workloads.events('data')}", pause=0.5)
    writer.goes_on()
    writer.stop()
