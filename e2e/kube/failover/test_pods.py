"""Which pods are moved, and which are left alone."""

import pytest

from harness.cleanup import wait_until
from kube.failover.watching import MOVES_SECONDS
from kube.workloads import pod_spec, wait_for_event
from kube.writer import Writer

SHARERS = ("one", "two")


@pytest.fixture
def bystander(place):
    """A pod that moves in any case, so that its node is fenced."""
    return place("bystander", node="node-2")


def kill_node_of(bystander):
    bystander.host.power_off()
    bystander.moves()


def runs_elsewhere(workloads, prefix, node):
    """The pod with this prefix, once it is ready on another node."""

    def found():
        return next(
            (
                pod
                for pod in workloads.kubectl.items("pods", *workloads.here)
                if pod["metadata"]["name"].startswith(prefix)
                and pod["spec"].get("nodeName") not in (None, node)
                and pod["status"].get("phase") == "Running"
                and "deletionTimestamp" not in pod["metadata"]
            ),
            None,
        )

    return wait_until(found, MOVES_SECONDS, f"{prefix} runs elsewhere", pause=0.2)


def test_a_deployments_pod_moves(bystander, workloads):
    workloads.claim("data")
    labels = {"app": "web"}
    spec = {
        **pod_spec(),
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "preference": {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": [bystander.node]}
                            ]
                        },
                    }
                ]
            }
        },
    }
    workloads.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
    )

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
    """No controller would recreate it. A person who does finds its volume free: it is fenced on demand."""
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
    workloads.opt_out("free-0")
    uid = workloads.kubectl.get("pod", "free-0", *workloads.here)["metadata"]["uid"]
    kill_node_of(bystander)
    metadata = workloads.kubectl.get("pod", "free-0", *workloads.here)["metadata"]
    assert metadata["uid"] == uid
    assert "deletionTimestamp" not in metadata


def test_a_pod_with_another_drivers_volume_is_left_alone(bystander, workloads):
    """Nothing proves that writes to its other volume have ended."""
    folder = str(workloads.cluster.folder / "records")
    name = f"{workloads.namespace}-foreign"
    workloads.kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Mi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": folder},
                "storageClassName": name,
                "claimRef": {"namespace": workloads.namespace, "name": "foreign"},
            },
        }
    )
    try:
        workloads.claim("foreign", size="1Mi", storage_class=name)
        workloads.stateful_set(
            "mixed",
            more_volumes=[{"name": "foreign", "persistentVolumeClaim": {"claimName": "foreign"}}],
            nodeName=bystander.node,
        )
        uid = workloads.wait_for_pod("mixed-0")["metadata"]["uid"]
        kill_node_of(bystander)
        metadata = workloads.kubectl.get("pod", "mixed-0", *workloads.here)["metadata"]
        assert metadata["uid"] == uid
        assert "deletionTimestamp" not in metadata
    finally:
        workloads.delete("statefulset", "mixed", "--wait=false")
        workloads.delete("pod", "mixed-0", "--force", "--grace-period=0")
        workloads.kubectl("delete", "pv", name, "--wait=false")


def test_a_daemon_sets_pod_is_left_alone_and_told_why(bystander, workloads):
    """It belongs to its node."""
    workloads.claim("data")
    labels = {"app": "daemon"}
    spec = {
        **pod_spec(),
        "nodeSelector": {"kubernetes.io/hostname": bystander.node},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    workloads.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "daemon"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
    )
    pod = wait_until(
        lambda: next(iter(workloads.kubectl.items("pods", *workloads.here, "--selector=app=daemon")), None),
        30,
        "the DaemonSet has its pod",
        pause=0.2,
    )
    name = workloads.wait_for_pod(pod["metadata"]["name"])["metadata"]["name"]
    kill_node_of(bystander)
    assert stays(workloads, pod)
    wait_for_event(workloads, name, "NotFailedOver", "its owner is a DaemonSet")


def stays(workloads, pod):
    now = workloads.kubectl.get("pod", pod["metadata"]["name"], *workloads.here)["metadata"]
    return now["uid"] == pod["metadata"]["uid"] and "deletionTimestamp" not in now


@pytest.fixture
def sharers(bystander, workloads):
    """Two StatefulSets' pods on the bystander's node that share one raw block volume."""
    workloads.claim("shared", size="16Mi", mode="ReadWriteMany", volumeMode="Block")
    container = {
        **pod_spec()["containers"][0],
        "volumeDevices": [{"name": "shared", "devicePath": "/dev/shared"}],
    }
    with workloads.new_pods_go_to(bystander.node):
        for name in SHARERS:
            workloads.stateful_set(
                name,
                claims=False,
                containers=[container],
                more_volumes=[{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}],
            )
        pods = [workloads.wait_for_pod(f"{name}-0") for name in SHARERS]
    workloads.shell("one-0", "echo shared mark | dd of=/dev/shared bs=512 conv=sync,fsync")
    return pods


def test_pods_that_share_a_volume_move_together(bystander, workloads, sharers):
    kill_node_of(bystander)
    for pod in sharers:
        name = pod["metadata"]["name"]
        runs_elsewhere(workloads, name, bystander.node)
        assert "shared mark" in workloads.shell(name, "head -c 512 /dev/shared")


def test_a_pod_that_shares_a_volume_with_one_that_stays_stays_too(bystander, workloads, sharers):
    """A fence of the volume would stop the pod that stays, too."""
    workloads.opt_out("two-0")
    kill_node_of(bystander)
    assert all(stays(workloads, pod) for pod in sharers)
    wait_for_event(workloads, "two-0", "NotFailedOver", "opted out")
    wait_for_event(workloads, "one-0", "NotFailedOver", "shares a volume")
