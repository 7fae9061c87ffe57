"""`lunkeeper import`: the cluster's objects are lost, the array and its volumes are not."""

import json

import pytest

from cluster.deploy import NAMESPACE
from harness.cleanup import wait_until

PROVISIONERS_MARK = "storage.kubernetes.io/csiProvisionerIdentity"


def run_import(workloads, *words):
    return workloads.kubectl(
        *("exec", "deploy/lunkeeper-controller", f"--namespace={NAMESPACE}", "--container=lunkeeper"),
        *("--", "lunkeeper", "import", *words),
    )


@pytest.fixture
def apply_text(workloads, tmp_path):
    """`kubectl apply` of what import printed, as it printed it."""

    def apply(text):
        (tmp_path / "import.yaml").write_text(text)
        workloads.kubectl("apply", f"--filename={tmp_path}/import.yaml")

    return apply


def handle_of(volume):
    return volume["spec"]["csi"]["volumeHandle"]


def forget(workloads, name):
    """As if etcd had never had the PersistentVolume; returns it as it was."""
    kubectl = workloads.kubectl
    kubectl("patch", "pv", name, "-p", '{"spec": {"persistentVolumeReclaimPolicy": "Retain"}}')
    kept = kubectl.get("pv", name)
    kubectl("delete", "pv", name, "--wait=false")

    def gone():
        kubectl.attempt("patch", "pv", name, "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
        return kubectl.find("pv", name) is None

    wait_until(gone, 60, f"PersistentVolume {name} is gone", pause=0.2)
    return kept


def forget_claim(workloads, claim):
    name = workloads.wait_for_bound(claim)
    workloads.kubectl("patch", "pv", name, "-p", '{"spec": {"persistentVolumeReclaimPolicy": "Retain"}}')
    workloads.delete("pvc", claim)
    return forget(workloads, name)


def delete_for_good(workloads, *claims):
    """An imported volume is deleted with its claim once its policy says so."""
    for claim in claims:
        volume = workloads.wait_for_bound(claim)
        workloads.kubectl(
            "patch", "pv", volume, "-p", '{"spec": {"persistentVolumeReclaimPolicy": "Delete"}}'
        )
        workloads.delete("pvc", claim)
        wait_until(
            lambda volume=volume: workloads.kubectl.find("pv", volume) is None, 60, f"{volume} is deleted"
        )


def comparable(volume):
    """Its specification, without what belongs to one claim or is meant to differ."""
    spec = json.loads(json.dumps(volume["spec"]))
    del spec["claimRef"]
    spec["csi"].get("volumeAttributes", {}).pop(PROVISIONERS_MARK, None)
    if not spec["csi"].get("volumeAttributes"):
        spec["csi"].pop("volumeAttributes", None)
    return spec


@pytest.mark.parametrize("kind", ["xfs", "block"])
def test_a_pod_finds_its_data_after_everything_but_the_array_was_lost(workloads, apply_text, kind):
    kinds = {
        "xfs": {
            "parameters": {"csi.storage.k8s.io/fstype": "xfs"},
            "mountOptions": ["noatime"],
        },
        "block": {},
    }
    chosen = workloads.storage_class(**kinds[kind])
    mode = {"volumeMode": "Block"} if kind == "block" else {}
    workloads.claim("data", size="512Mi", storage_class=chosen, **mode)
    if kind == "xfs":
        workloads.pod("writer", "data")
        workloads.wait_for_pod("writer")
        workloads.shell("writer", "echo kept > /data/file && sync")
        workloads.delete("pod", "writer")
    before = forget_claim(workloads, "data")
    volume = handle_of(before)
    assert volume in run_import(workloads)
    words = (volume, f"--storage-class={chosen}")
    if kind == "block":  # the array knows the other's, and finds it by itself
        words += (f"--claim={volume}={workloads.namespace}/data",)
    apply_text(run_import(workloads, *words, "--output=yaml"))
    assert workloads.wait_for_bound("data") == before["metadata"]["name"]
    after = workloads.kubectl.get("pv", before["metadata"]["name"])
    assert comparable(after) == comparable(before)
    assert json.loads(run_import(workloads, *words, "--output=json"))["items"] == []
    if kind == "xfs":
        workloads.pod("reader", "data")
        workloads.wait_for_pod("reader")
        assert workloads.shell("reader", "cat /data/file").strip() == "kept"
        workloads.delete("pod", "reader")
    delete_for_good(workloads, "data")
    assert volume not in workloads.kubectl(
        *("exec", "deploy/lunkeeper-controller", f"--namespace={NAMESPACE}", "--container=lunkeeper"),
        *("--", "lunkeeper", "volumes"),
    )


def test_a_claim_that_lost_its_volume_alone_gets_it_back(workloads, apply_text):
    workloads.pod_with_claim("writer")
    workloads.shell("writer", "echo kept > /data/file && sync")
    workloads.delete("pod", "writer")
    before = forget(workloads, workloads.wait_for_bound("data"))
    wait_until(
        lambda: workloads.kubectl.get("pvc", "data", *workloads.here)["status"]["phase"] == "Lost",
        60,
        "the claim is lost",
    )
    said = run_import(workloads, handle_of(before), "--output=yaml")
    assert "PersistentVolumeClaim" in said and f'name: "{before["metadata"]["name"]}"' in said
    apply_text(said)
    assert workloads.wait_for_bound("data") == before["metadata"]["name"]
    workloads.pod("reader", "data")
    workloads.wait_for_pod("reader")
    assert workloads.shell("reader", "cat /data/file").strip() == "kept"
    workloads.delete("pod", "reader")
    delete_for_good(workloads, "data")


def test_a_volume_of_a_claim_made_twice_is_given_to_none_until_somebody_says_which(workloads, apply_text):
    chosen = workloads.storage_class()
    volumes = []
    for _ in range(2):
        workloads.claim("data", storage_class=chosen)
        volumes.append(forget_claim(workloads, "data"))
    names = {volume["metadata"]["name"] for volume in volumes}
    handles = [handle_of(volume) for volume in volumes]
    said = run_import(workloads, *handles, f"--storage-class={chosen}", "--output=yaml")
    apply_text(said)
    workloads.claim("data", storage_class=chosen)
    assert workloads.wait_for_bound("data") not in names
    # The operator learns whose they were.
    for name, claim in zip(sorted(names), ("first", "second"), strict=True):
        reference = {"namespace": workloads.namespace, "name": claim}
        workloads.kubectl(
            "patch", "pv", name, "--type=merge", "-p", json.dumps({"spec": {"claimRef": reference}})
        )
        workloads.claim(claim, storage_class=chosen)
        assert workloads.wait_for_bound(claim) == name
    delete_for_good(workloads, "first", "second")


def test_a_waiting_claim_gets_its_volume_or_import_says_that_it_would_not(workloads, apply_text):
    """What Kubernetes does with a claim that does not fit, it does without a word: it makes a new volume."""
    immediate = workloads.storage_class()
    workloads.claim("data", storage_class=immediate, mode="ReadWriteOncePod")
    before = forget_claim(workloads, "data")
    waiting = workloads.storage_class("waiting", volumeBindingMode="WaitForFirstConsumer")
    wish = f"--claim={handle_of(before)}={workloads.namespace}/data"

    workloads.claim("data", storage_class=waiting, mode="ReadWriteOncePod", size="257Mi")
    with pytest.raises(Exception, match="asks for 257Mi, and the volume has 256Mi"):
        run_import(workloads, handle_of(before), wish, "--output=yaml")
    workloads.delete("pvc", "data")

    workloads.claim("data", storage_class=waiting, mode="ReadWriteOncePod")
    apply_text(run_import(workloads, handle_of(before), wish, "--output=yaml"))
    assert workloads.wait_for_bound("data") == before["metadata"]["name"]
    delete_for_good(workloads, "data")


def forget_snapshot(workloads, name):
    """As if etcd had never had the VolumeSnapshot and its content; returns the content as it was."""
    bound = workloads.kubectl.get("volumesnapshot", name, *workloads.here)["status"]
    content = bound["boundVolumeSnapshotContentName"]
    kept = workloads.kubectl.get("volumesnapshotcontent", content)
    retain = json.dumps({"spec": {"deletionPolicy": "Retain"}})
    workloads.kubectl("patch", "volumesnapshotcontent", content, "--type=merge", "-p", retain)
    workloads.delete("volumesnapshot", name)
    workloads.kubectl("delete", "volumesnapshotcontent", content)
    return kept


def test_a_snapshot_is_brought_back_with_its_volume_and_restored(workloads, apply_text):
    workloads.pod_with_claim("writer")
    workloads.shell("writer", "echo before > /data/file && sync")
    workloads.snapshot("moment", "data")
    workloads.shell("writer", "echo after > /data/file && sync")
    workloads.delete("pod", "writer")
    content = forget_snapshot(workloads, "moment")
    snapshot = content["status"]["snapshotHandle"]
    volume = handle_of(forget_claim(workloads, "data"))
    assert snapshot in run_import(workloads)
    words = (volume, snapshot, "--storage-class=lunkeeper")
    said = run_import(workloads, *words, "--output=json")
    *others, last = json.loads(said)["items"]
    assert last["kind"] == "VolumeSnapshot" and last["metadata"]["namespace"] == workloads.namespace
    # An import that breaks off goes on where it was.
    workloads.kubectl.apply(*others)
    (again,) = json.loads(run_import(workloads, *words, "--output=json"))["items"]
    assert again == last
    apply_text(run_import(workloads, *words, "--output=yaml"))
    assert json.loads(run_import(workloads, *words, "--output=json"))["items"] == []
    name = last["metadata"]["name"]
    workloads.wait_for_snapshot("volumesnapshot", name)
    source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name}
    workloads.pod_with_claim("reader", "restored", dataSource=source)
    assert workloads.shell("reader", "cat /data/file").strip() == "before"
    workloads.delete("pod", "reader")
    # An imported snapshot is deleted at the array once its policy says so.
    delete = json.dumps({"spec": {"deletionPolicy": "Delete"}})
    bound = last["spec"]["source"]["volumeSnapshotContentName"]
    assert bound == content["metadata"]["name"]
    workloads.kubectl("patch", "volumesnapshotcontent", bound, "--type=merge", "-p", delete)
    workloads.delete("volumesnapshot", name)
    wait_until(
        lambda: workloads.kubectl.find("volumesnapshotcontent", bound) is None, 60, "the snapshot is deleted"
    )
    delete_for_good(workloads, "data")
