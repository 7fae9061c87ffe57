"""The kinds of claims, and the volumes that their pods find."""

import json

import pytest

from cluster.deploy import NAMESPACE
from harness.cleanup import wait_until
from kube.workloads import block_container


def test_a_late_binding_volume_is_made_when_its_pod_is_scheduled(workloads):
    late = workloads.storage_class(volumeBindingMode="WaitForFirstConsumer")
    workloads.claim("data", storage_class=late)
    wait_until(
        lambda: any("WaitForFirstConsumer" in event for event in workloads.events("data")),
        30,
        "the claim waits",
    )
    assert not workloads.volumes()
    workloads.pod("reader", "data")
    workloads.wait_for_pod("reader")
    assert len(workloads.volumes()) == 1


def test_the_scheduler_is_told_how_much_room_is_left(workloads):
    late = workloads.storage_class("late", volumeBindingMode="WaitForFirstConsumer")
    thick = workloads.storage_class("thick", parameters={"provisioning": "thick"})

    def room():
        """In MiB: capacities are whole ones."""
        objects = workloads.kubectl.items("csistoragecapacities", f"--namespace={NAMESPACE}")
        # As the scheduler does: maximumVolumeSize, where there is one.
        shown = [
            each.get("maximumVolumeSize", each["capacity"])
            for each in objects
            if each["storageClassName"] == late
        ]
        return min((int(each[:-2]) * {"Mi": 1, "Gi": 1024}[each[-2:]] for each in shown), default=0)

    before = wait_until(room, 30, "there is an object for the class")
    workloads.claim("data", storage_class=thick, size="512Mi")
    workloads.wait_for_bound("data")
    wait_until(lambda: 0 < room() <= before - 400, 30, "the object has what is left", pause=0.5)


def test_a_retained_volume_outlives_its_claim(workloads):
    kept = workloads.storage_class(reclaimPolicy="Retain")
    workloads.claim("data", storage_class=kept)
    volume = workloads.wait_for_bound("data")
    workloads.delete("pvc", "data")
    wait_until(
        lambda: workloads.kubectl.get("pv", volume)["status"]["phase"] == "Released",
        30,
        "the volume is released",
    )
    workloads.kubectl("patch", "pv", volume, "-p", '{"spec": {"persistentVolumeReclaimPolicy": "Delete"}}')
    wait_until(
        lambda: workloads.kubectl.find("pv", volume) is None,
        30,
        "the volume is deleted when its policy says so",
    )


@pytest.mark.parametrize("filesystem,size", [("ext4", "256Mi"), ("xfs", "512Mi")])
def test_a_volume_has_the_file_system_and_the_mount_options_of_its_class(workloads, filesystem, size):
    chosen = workloads.storage_class(parameters={"fsType": filesystem}, mountOptions=["noatime"])
    workloads.pod_with_claim("reader", "data", storage_class=chosen, size=size)
    kind, options = workloads.shell("reader", "grep ' /data ' /proc/mounts | cut -d' ' -f3,4").split()
    assert kind == filesystem
    assert "noatime" in options.split(",")


def test_a_claim_gets_the_limits_of_its_class_of_attributes_and_of_another_one_later(workloads):
    silver = workloads.attributes_class("silver", maxIops="500")
    gold = workloads.attributes_class("gold", maxIops="5000", maxBandwidth="64Mi")
    workloads.pod_with_claim("writer", "data", volumeAttributesClassName=silver)
    (volume,) = workloads.volumes()
    at_array = workloads.kubectl.get("pv", volume)["spec"]["csi"]["volumeHandle"]

    def limits():
        controller = ("exec", "deploy/lunkeeper-controller", "--namespace=lunkeeper", "--container=lunkeeper")
        told = workloads.kubectl(*controller, "--", "lunkeeper", "volumes", "--output=json")
        (found,) = [each for each in json.loads(told) if each["id"] == at_array]
        return found["max_iops"], found["max_bandwidth_bytes"]

    assert limits()[0] == 500
    change = f'{{"spec": {{"volumeAttributesClassName": "{gold}"}}}}'
    workloads.kubectl("patch", "pvc", "data", *workloads.here, "-p", change)
    wait_until(
        lambda: workloads.kubectl.get("pvc", "data", *workloads.here)["status"].get(
            "currentVolumeAttributesClassName"
        )
        == gold,
        60,
        lambda: f"the claim has the other class: {workloads.events('data')}",
    )
    assert limits() == (5000, 64 << 20)
    assert workloads.shell("writer", "echo kept > /data/file && cat /data/file").strip() == "kept"


def test_a_block_volume_is_a_device_of_the_size_asked_for(workloads):
    workloads.claim("raw", size="64Mi", volumeMode="Block")
    workloads.pod("reader", "raw", containers=[block_container()])
    workloads.wait_for_pod("reader")
    assert int(workloads.run_in("reader", "blockdev", "--getsize64", "/dev/data")) == 64 << 20
    text = workloads.shell(
        "reader", "echo kept | dd of=/dev/data bs=512 conv=sync,fsync 2>/dev/null; head -c 4 /dev/data"
    )
    assert text == "kept"


def test_fs_group_may_write(workloads):
    workloads.claim("data")
    workloads.pod("writer", "data", securityContext={"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000})
    workloads.wait_for_pod("writer")
    assert workloads.shell("writer", "echo mine > /data/file && stat -c %g /data/file").strip() == "2000"


def test_a_volume_for_one_pod_is_refused_to_a_second(workloads):
    workloads.pod_with_claim("first", "data", mode="ReadWriteOncePod")
    workloads.pod("second", "data")
    wait_until(
        lambda: any("ReadWriteOncePod" in event for event in workloads.events("second")),
        30,
        "the second pod is told why it waits",
    )
    workloads.delete("pod", "first")
    workloads.wait_for_pod("second")


def test_two_pods_of_one_node_share_a_volume(workloads):
    node = workloads.pod_with_claim("first")["spec"]["nodeName"]
    workloads.pod("second", "data", nodeName=node)
    workloads.wait_for_pod("second")
    workloads.shell("first", "echo hello > /data/file")
    assert workloads.shell("second", "cat /data/file").strip() == "hello"


def test_a_volume_for_many_readers_is_read_on_every_node_and_written_on_none(workloads):
    """It is a clone of a volume with data: a new one would be empty."""
    workloads.pod_with_claim("writer")
    workloads.shell("writer", "echo hello > /data/file && sync")
    workloads.delete("pod", "writer")
    workloads.claim(
        "shared", mode="ReadOnlyMany", dataSource={"kind": "PersistentVolumeClaim", "name": "data"}
    )
    for node in workloads.cluster.nodes:
        workloads.pod(f"on-{node}", "shared", nodeName=node)
    for node in workloads.cluster.nodes:
        workloads.wait_for_pod(f"on-{node}")
        assert workloads.shell(f"on-{node}", "cat /data/file").strip() == "hello"
        refused = workloads.shell(f"on-{node}", "touch /data/more 2>&1 || true")
        assert "Read-only file system" in refused
