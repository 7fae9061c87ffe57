"""Groups of snapshots: of claims on several nodes, by the snapshot controller and the chart's sidecar."""

import json
import re
import types
from pathlib import Path

import pytest

from cluster import faults, storage
from cluster.deploy import DRIVER
from harness.cleanup import wait_until
from harness.dependent_writers import DependentWriters, broken, records
from kube.workloads import block_container, wait_for_group_error

LABEL = {"app": "shop"}
API, GROUP_API = "snapshot.storage.k8s.io/v1", "groupsnapshot.storage.k8s.io/v1"


@pytest.fixture
def devices(workloads):
    """{claim: its device on this machine}: a claim with the label for each node, with a pod there."""
    claims = {f"data-{node}": node for node in workloads.cluster.nodes}
    for claim, node in claims.items():
        workloads.claim(claim, labels=LABEL, size="64Mi", volumeMode="Block")
        workloads.pod(claim, claim, nodeName=node, containers=[block_container()])
    return {claim: device_of(workloads, claim) for claim in claims}


def device_of(workloads, pod):
    """The block device of a pod. Nodes are namespaces of this machine, so it is one of this machine's."""
    workloads.wait_for_pod(pod)
    major, minor = workloads.shell(pod, "stat -Lc %t:%T /dev/data").strip().split(":")
    told = Path(f"/sys/dev/block/{int(major, 16)}:{int(minor, 16)}/uevent").read_text()
    return Path("/dev", re.search(r"DEVNAME=(.+)", told)[1])


def at_the_array(workloads):
    """{snapshot: its group} of this test's volumes, as the array has them."""
    ids = ", ".join(f"'{handle}'" for handle in handles(workloads))
    query = f"SELECT id, group_id FROM snapshots WHERE source IN ({ids})"
    return dict(workloads.cluster.storage.query_catalogue(query))


def handles(workloads):
    volumes = [workloads.kubectl.get("pv", name) for name in workloads.volumes()]
    return [volume["spec"]["csi"]["volumeHandle"] for volume in volumes]


def test_a_group_has_no_write_without_the_one_that_it_waited_for(workloads, devices):
    """As its restored claims show; and it is deleted with its snapshots."""
    written_to = [types.SimpleNamespace(target=device) for device in devices.values()]
    with DependentWriters(written_to) as writers:
        writers.wait_for_records(20)
        workloads.snapshot_group("moment", LABEL)
        writers.wait_for_records(20)
    snapshots = workloads.members("moment")
    assert set(snapshots) == set(devices)
    taken = at_the_array(workloads)
    assert len(taken) == len(devices) and len(set(taken.values())) == 1 and "" not in taken.values()
    restored = restore(workloads, snapshots)
    assert not (found := broken(restored)), found
    for device, now in zip(restored, devices.values()):
        assert 0 < sum(records(device)) < sum(records(now)), "of a moment between"

    workloads.delete("volumegroupsnapshot", "moment")
    wait_until(lambda: not workloads.members("moment"), 60, "its snapshots have gone", pause=0.2)
    assert not at_the_array(workloads)


def restore(workloads, snapshots):
    """The devices of new claims, in the order of the snapshots."""
    for claim, snapshot in snapshots.items():
        claim_from(workloads, f"of-{claim}", snapshot)
        workloads.pod(f"of-{claim}", f"of-{claim}", containers=[block_container()])
    return [device_of(workloads, f"of-{claim}") for claim in snapshots]


def claim_from(workloads, name, snapshot):
    source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot}
    workloads.claim(name, size="64Mi", volumeMode="Block", dataSource=source)


def claims(workloads, *names):
    """Of raw volumes, with the label."""
    for name in names:
        workloads.claim(name, labels=LABEL, size="64Mi", volumeMode="Block")
        workloads.wait_for_bound(name)


def test_a_group_that_cannot_be_made_now_says_why_and_is_made_later(workloads):
    """Its agent is down. A group that is given up meanwhile leaves nothing."""
    array = workloads.cluster.storage
    claims(workloads, "one", "two")
    faults.refuse(array, storage.AGENT_PORT)
    try:
        for name in ("moment", "given-up"):
            workloads.ask_for_group(name, LABEL)
            wait_for_group_error(workloads, name, f"array {storage.ARRAY} at ", "cannot be reached")
        workloads.delete("volumegroupsnapshot", "given-up", "--wait=false")
    finally:
        faults.heal(array)
    workloads.wait_for_snapshot("volumegroupsnapshot", "moment")
    wait_until(
        lambda: not workloads.kubectl.find("volumegroupsnapshot", "given-up", *workloads.here),
        120,
        lambda: f"the other is gone: {workloads.events('given-up')}",
        pause=0.2,
    )
    taken = at_the_array(workloads)
    assert len(taken) == 2 and len(set(taken.values())) == 1


def test_a_group_is_brought_back_by_its_handles(workloads):
    """Kubernetes has lost its objects, the array has not. The documents say how."""
    claims(workloads, "one", "two")
    workloads.snapshot_group("moment", LABEL)
    group, snapshots = forget(workloads, "moment")
    assert set(at_the_array(workloads)) == set(snapshots)
    handles_of = {"volumeGroupSnapshotHandle": group, "volumeSnapshotHandles": snapshots}
    bring_back(workloads, "VolumeGroupSnapshot", "group", {"groupSnapshotHandles": handles_of})
    bring_back(workloads, "VolumeSnapshot", "member", {"snapshotHandle": snapshots[0]})
    claim_from(workloads, "restored", "member")
    workloads.wait_for_bound("restored")
    assert list(workloads.members("group").values()) == ["member"], "the array said whose it is"
    workloads.delete("volumegroupsnapshot", "group")
    wait_until(
        lambda: not workloads.members("group"),
        180,
        lambda: f"its snapshot has gone: {workloads.events('member')}",
        pause=0.2,
    )
    assert not at_the_array(workloads)


def forget(workloads, name):
    """Deletes the objects of a group, and not the group; returns its id and those of its snapshots."""
    kubectl = workloads.kubectl
    group = kubectl.get("volumegroupsnapshot", name, *workloads.here)["status"]
    contents = [("volumegroupsnapshotcontent", group["boundVolumeGroupSnapshotContentName"])]
    status = kubectl.get(*contents[0])["status"]
    for snapshot in kubectl.items("volumesnapshots", *workloads.here):
        contents.append(("volumesnapshotcontent", snapshot["status"]["boundVolumeSnapshotContentName"]))
    for content in contents:
        kubectl("patch", *content, "--type=merge", "-p", json.dumps({"spec": {"deletionPolicy": "Retain"}}))
    workloads.delete("volumegroupsnapshot", name)
    wait_until(lambda: not workloads.members(name), 60, "its snapshots have gone", pause=0.2)
    for content in contents:
        kubectl("delete", *content)
    snapshots = [each["snapshotHandle"] for each in status["volumeSnapshotInfoList"]]
    return status["volumeGroupSnapshotHandle"], snapshots


def bring_back(workloads, kind, name, source):
    """The object of a snapshot or a group, and the content that leads to it at the array."""
    lower = kind[0].lower() + kind[1:]
    api = GROUP_API if kind == "VolumeGroupSnapshot" else API
    content = f"{workloads.namespace}-{name}"
    reference = {"name": name, "namespace": workloads.namespace}
    spec = {"driver": DRIVER, "deletionPolicy": "Delete", "source": source, f"{lower}Ref": reference}
    workloads.kubectl.apply(
        {"apiVersion": api, "kind": f"{kind}Content", "metadata": {"name": content}, "spec": spec}
    )
    workloads.apply(
        {
            "apiVersion": api,
            "kind": kind,
            "metadata": {"name": name},
            "spec": {"source": {f"{lower}ContentName": content}},
        }
    )
    workloads.wait_for_snapshot(kind.lower(), name)
