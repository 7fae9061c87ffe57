"""Pods that go with others of a dead node, as they must run beside them, or have no volume and a label that
asks for it. All tests look at one node, which dies once.
"""

from types import SimpleNamespace

import pytest

from cluster.kubectl import seconds_of
from harness.cleanup import Cleanup
from kube.failover.watching import MOVES_SECONDS, OVER_SECONDS, Failover, Placed, moments
from kube.workloads import Workloads, wait_for_event
from kube.writer import SmallWriter

CLAIM = {"size": "64Mi", "volumeMode": "Block"}
# Each runs beside the one that it is mapped to. The client is named so that it comes first.
BESIDE = {"server": None, "client": "server", "stays": None, "tied": "stays"}
WITHOUT_VOLUME = ("labelled", "unlabelled")


@pytest.fixture(scope="module")
def dead_node(cluster):
    """{name: a pod of the dead node}, and what failover is and was."""
    failover, workloads = Failover(cluster), Workloads(cluster)
    with Cleanup() as cleanup:
        cleanup.add(workloads.remove)
        cleanup.add(failover.end)
        failover.end()
        node = failover.without_controller()
        with workloads.new_pods_go_to(node):
            pods = placed(failover, workloads)
        workloads.opt_out("stays-0")
        workloads.kubectl("label", "pod", "labelled-0", *workloads.here, "lunkeeper.io/failover=always")
        uids = {name: pod.uid() for name, pod in pods.items()}
        failover.host(node).power_off()
        yield SimpleNamespace(node=node, pods=pods, uids=uids, failover=failover, workloads=workloads)


def placed(failover, workloads):
    """All at once."""
    writers = [
        SmallWriter(workloads, name, CLAIM, block=True, owner="StatefulSet", **beside(other))
        for name, other in BESIDE.items()
    ]
    for name in WITHOUT_VOLUME:
        workloads.stateful_set(name, claims=False)
    for each in writers:
        each.goes_on(seconds=90)
    pods = {each.name: each for each in writers}
    pods |= {name: SimpleNamespace(pod=f"{name}-0") for name in WITHOUT_VOLUME}
    return {name: Placed(failover, workloads, pod) for name, pod in pods.items()}


def beside(other):
    """The affinity of a pod that must run where a pod of that name does."""
    if other is None:
        return {}
    term = {"labelSelector": {"matchLabels": {"app": other}}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def stays(dead_node, name):
    return dead_node.pods[name].stays(dead_node.uids[name])


def test_a_pod_moves_with_the_one_that_it_must_run_beside(dead_node):
    there = {dead_node.pods[name].moves(2 * MOVES_SECONDS) for name in ("server", "client")}
    assert len(there) == 1, there


def test_a_pod_stays_with_the_one_that_it_must_run_beside(dead_node):
    wait_for_event(dead_node.workloads, "stays-0", "NotFailedOver", "opted out")
    wait_for_event(dead_node.workloads, "tied-0", "NotFailedOver", "it must run beside")
    assert stays(dead_node, "stays") and stays(dead_node, "tied")


def test_a_labelled_pod_without_a_volume_leaves_after_the_fence(dead_node):
    """Kubernetes would never move a StatefulSet's."""
    dead_node.pods["labelled"].runs_elsewhere()
    fence = dead_node.failover.wait_until_fenced(dead_node.node)
    fenced = min(at for at, event, _ in moments(fence) if event == "Fenced")
    (told,) = dead_node.workloads.kubectl.items(
        *("events", *dead_node.workloads.here),
        "--field-selector=involvedObject.name=labelled-0,reason=FailedOver",
    )
    assert fenced <= seconds_of(told["eventTime"])


def test_an_unlabelled_pod_without_a_volume_is_left_to_kubernetes(dead_node):
    """Kubernetes moves none so soon."""
    assert stays(dead_node, "unlabelled")
    told = dead_node.workloads.events("unlabelled-0")
    assert not [event for event in told if "FailedOver" in event], told


def test_when_the_node_is_back_all_go_on_and_nothing_is_lost(dead_node):
    """What stayed are the same pods."""
    dead_node.failover.host(dead_node.node).boot()
    dead_node.failover.wait_until_over(dead_node.node)
    for name in BESIDE:
        dead_node.pods[name].writer.goes_on(seconds=OVER_SECONDS)
    for name in ("server", "client"):
        dead_node.pods[name].lost_nothing()
    for name in ("stays", "tied"):
        dead_node.pods[name].writer.verify(f"{name}-0")
    for name in ("stays", "tied", "unlabelled"):
        assert stays(dead_node, name)
