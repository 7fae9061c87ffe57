"""Which pods are moved, and which are left alone."""

import pytest

from harness.cleanup import wait_until
from kube.failover.watching import MOVES_SECONDS
from kube.workloads import pod_spec
from kube.writer import Writer

NEVER = {"lunkeeper.io/failover": "never"}


@pytest.fixture
def bystander(place):
    """Why its node is fenced, whatever becomes of the others there."""
    return place("bystander", node="node-2")


def kill_node_of(bystander):
    bystander.host.power_off()
    bystander.moves()


def runs_elsewhere(workloads, prefix, node):
    """The pod whose name begins so, once it is ready on another node."""
    def found():
        return next((pod for pod in workloads.kubectl.items("pods", *workloads.here)
                     if pod["metadata"]["name"].startswith(prefix) and pod["spec"].get("nodeName") not in (None, node)
                     and pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]), None)
    return wait_until(found, MOVES_SECONDS, f"{prefix} runs elsewhere", pause=0.2)


def test_a_deployments_pod_moves(bystander, workloads):
    workloads.claim("data")
    labels = {"app": "web"}
    spec = {**pod_spec(), "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100, "preference": {"matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": [bystander.node]}]}}]}}}
    workloads.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}})

    def first():
        pods = workloads.kubectl.items("pods", *workloads.here, "--selector=app=web")
        return pods[0] if pods and pods[0]["status"].get("phase") == "Running" else None
    pod = wait_until(first, 60, "the Deployment's pod runs", pause=0.2)
    assert pod["spec"]["nodeName"] == bystander.node
    workloads.shell(pod["metadata"]["name"], "echo kept > /data/file && sync")
    kill_node_of(bystander)
    there = runs_elsewhere(workloads, "web-", bystander.node)
    assert workloads.shell(there["metadata"]["name"], "cat /data/file").strip() == "kept"


def test_a_bare_pod_stays_until_it_is_made_again_by_hand(bystander, workloads, failover):
    """Nobody would make it again. Who does finds its volume free: fenced on demand."""
    workloads.claim("bare", size="64Mi", volumeMode="Block")
    Writer(workloads, "bare", "bare", block=True, nodeName=bystander.node).goes_on()
    kill_node_of(bystander)
    failover.wait_until_fenced(bystander.node)
    uid = workloads.kubectl.get("pod", "bare", *workloads.here)["metadata"]
    assert "deletionTimestamp" not in uid
    workloads.delete("pod", "bare", "--force", "--grace-period=0")
    elsewhere = next(name for name in workloads.cluster.nodes if name != bystander.node)
    again = Writer(workloads, "bare", "bare", block=True, nodeName=elsewhere)
    again.goes_on(seconds=90)
    again.stop()


def test_an_opted_out_pod_is_left_alone(bystander, workloads):
    workloads.stateful_set("free", nodeName=bystander.node)
    workloads.wait_for_pod("free-0")
    workloads.kubectl("label", "pod", "free-0", *workloads.here, "lunkeeper.io/failover=never")
    uid = workloads.kubectl.get("pod", "free-0", *workloads.here)["metadata"]["uid"]
    kill_node_of(bystander)
    metadata = workloads.kubectl.get("pod", "free-0", *workloads.here)["metadata"]
    assert metadata["uid"] == uid
    assert "deletionTimestamp" not in metadata


def test_a_pod_with_another_drivers_volume_is_left_alone(bystander, workloads):
    """Nobody could say that its other volume is not written to any more."""
    folder = str(workloads.cluster.folder / "records")
    name = f"{workloads.namespace}-foreign"
    workloads.kubectl.apply({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
            "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": folder},
            "storageClassName": name, "claimRef": {"namespace": workloads.namespace, "name": "foreign"}}})
    try:
        workloads.claim("foreign", size="1Mi", storage_class=name)
        workloads.stateful_set("mixed", more_volumes=[{"name": "foreign", "persistentVolumeClaim": {"claimName": "foreign"}}],
                               nodeName=bystander.node)
        uid = workloads.wait_for_pod("mixed-0")["metadata"]["uid"]
        kill_node_of(bystander)
        metadata = workloads.kubectl.get("pod", "mixed-0", *workloads.here)["metadata"]
        assert metadata["uid"] == uid
        assert "deletionTimestamp" not in metadata
    finally:
        workloads.delete("statefulset", "mixed", "--wait=false")
        workloads.delete("pod", "mixed-0", "--force", "--grace-period=0")
        workloads.kubectl("delete", "pv", name, "--wait=false")
