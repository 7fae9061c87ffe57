"""A volume belongs to one node at a time, whatever happens to pods and nodes."""

from harness.cleanup import wait_until
from kube.workloads import wait_for_event
from kube.writer import Writer


def test_a_writer_moves_by_a_drain_and_loses_nothing(workloads):
    writer = Writer(workloads, "db", None, owner="StatefulSet").goes_on()
    node = workloads.wait_for_pod("db-0")["spec"]["nodeName"]
    try:
        workloads.drain(node)
        wait_until(lambda: node_of(workloads, "db-0") not in (None, node), 60, "the pod runs elsewhere")
        writer.goes_on(seconds=60)
    finally:
        workloads.kubectl("uncordon", node)


def test_a_force_deleted_pods_replacement_waits_for_the_healthy_node_to_let_go(workloads):
    """For Kubernetes the pod is gone at once; for the array it is not."""
    writer = Writer(workloads, "db", None, owner="StatefulSet").goes_on()
    first = workloads.wait_for_pod("db-0")["spec"]["nodeName"]
    workloads.kubectl("cordon", first)
    try:
        workloads.delete("pod", "db-0", "--force", "--grace-period=0")
        wait_until(lambda: node_of(workloads, "db-0") not in (None, first), 60, "the pod runs elsewhere")
        writer.goes_on(seconds=120)
    finally:
        workloads.kubectl("uncordon", first)


def test_of_two_pods_on_two_nodes_one_gets_the_volume_and_the_other_waits(workloads):
    workloads.claim("data")
    nodes = sorted(workloads.cluster.nodes)[:2]
    for node in nodes:
        workloads.pod(f"on-{node}", "data", nodeName=node)

    def ready():
        pods = workloads.kubectl.items("pods", *workloads.here)
        return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]

    (winner,) = wait_until(ready, 60, "one of them runs")
    has, waits = sorted(nodes, key=lambda node: f"on-{node}" != winner)
    wait_for_event(workloads, f"on-{waits}", "FailedMount", "waited", f"held by node {has}.")
    assert ready() == [winner]
    workloads.delete("pod", winner)
    workloads.wait_for_pod(f"on-{waits}", seconds=150)


def test_a_rebooted_node_runs_its_pods_again(workloads):
    """The node could not unstage its volumes."""
    node = "node-2"
    writer = Writer(workloads, "db", None, owner="StatefulSet", nodeName=node).goes_on()
    host = workloads.cluster.nodes[node]
    host.power_off()
    host.boot()
    wait_until(
        lambda: restarted(workloads, "db-0"),
        120,
        lambda: f"the pod runs again\n{workloads.kubectl.why('db-0', *workloads.here)}",
        pause=0.5,
    )
    writer.goes_on(seconds=60)


def node_of(workloads, pod):
    """The node of a running pod; None while it does not run."""
    found = workloads.kubectl.find("pod", pod, *workloads.here)
    running = (
        found and found["status"].get("phase") == "Running" and "deletionTimestamp" not in found["metadata"]
    )
    return found["spec"].get("nodeName") if running else None


def restarted(workloads, pod):
    statuses = workloads.kubectl.get("pod", pod, *workloads.here)["status"].get("containerStatuses", [])
    return any(status["restartCount"] > 0 and status["ready"] for status in statuses)
