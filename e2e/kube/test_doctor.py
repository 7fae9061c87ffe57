"""`lunkeeper doctor` on a cluster that is well, and with faults planted one by one. Faults of machines and
of an array are in e2e/agent/test_tools.py.
"""

import contextlib
import datetime

import pytest

from cluster import deploy
from cluster.kubectl import condition
from harness.cleanup import wait_until

HERE = f"--namespace={deploy.NAMESPACE}"
LEASES = "--namespace=kube-node-lease"


def ask(cluster, pod):
    """What doctor says in this pod of the plugin."""
    name = pod["metadata"]["name"]
    command = ("exec", HERE, name, "--container=lunkeeper", "--", "lunkeeper", "doctor")
    return cluster.kubectl.attempt(*command).stdout


def test_nothing_is_found_where_nothing_is_wrong(cluster, workloads):
    """With a volume on a node, from each controller and each node."""
    workloads.pod_with_claim("reader")
    said = {
        "controller": "nothing that it looks for is wrong with the server or the cluster\n",
        "node": "nothing that it looks for is wrong with the server\n",
    }
    asked = 0
    for component, well in said.items():
        for pod in deploy.pods(cluster, component):
            if not condition(pod, "Ready"):
                continue
            # The tests before may have left something that is about to end.
            wait_until(lambda: ask(cluster, pod) == well, 60, lambda: ask(cluster, pod), pause=1)
            asked += 1
    assert asked == 5


@contextlib.contextmanager
def a_namespace_without_privileged_pods(kubectl):
    label = "pod-security.kubernetes.io/enforce"
    kubectl("label", "namespace", deploy.NAMESPACE, f"{label}=baseline")
    try:
        yield f"pod security: namespace {deploy.NAMESPACE} admits baseline pods only"
    finally:
        kubectl("label", "namespace", deploy.NAMESPACE, f"{label}-")


@contextlib.contextmanager
def an_old_sidecar(kubectl):
    image = "registry.k8s.io/sig-storage/csi-provisioner:v5.3.0"
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "old", "namespace": deploy.NAMESPACE},
            "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "provisioner", "image": image}]},
        }
    )
    try:
        yield f"sidecars: {image} is older"
    finally:
        kubectl("delete", "pod", "old", HERE)


@contextlib.contextmanager
def no_class(kubectl):
    classes = [
        {**each, "metadata": {key: each["metadata"].get(key) for key in ("name", "labels", "annotations")}}
        for each in kubectl.items("storageclasses")
        if each["provisioner"] == deploy.DRIVER
    ]
    names = [each["metadata"]["name"] for each in classes]
    kubectl("delete", "storageclasses", *names)
    try:
        yield "classes: no StorageClass names this driver"
    finally:
        kubectl.apply(*classes)


@contextlib.contextmanager
def a_clock_that_is_behind(kubectl):
    """As the lease of a kubelet that is an hour ahead shows it."""
    ahead = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    kubectl.apply(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "ahead", "namespace": "kube-node-lease"},
            "spec": {"renewTime": ahead.strftime("%Y-%m-%dT%H:%M:%S.%fZ")},
        }
    )
    try:
        yield "clocks: this machine's clock is behind a kubelet's by 59m"
    finally:
        kubectl("delete", "lease", "ahead", LEASES)


FAULTS = (a_namespace_without_privileged_pods, an_old_sidecar, no_class, a_clock_that_is_behind)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_of_the_cluster_is_found_alone(cluster, fault):
    controller = next(pod for pod in deploy.pods(cluster, "controller") if condition(pod, "Ready"))
    with fault(cluster.kubectl) as expected:
        said = ask(cluster, controller)
    assert said.startswith(expected) and said.count("\n") == 1, said
