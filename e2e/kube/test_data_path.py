"""The data path is replaced by a rolling update of its DaemonSet: Linux 6.9 and later."""

import os

import pytest

from cluster import deploy
from harness.cleanup import wait_until
from kube.test_helm import plugin_pods, replaced
from kube.writer import Writer

ROUNDS = int(os.environ.get("ROLLING_UPDATES", "2"))  # 10 by name


@pytest.fixture
def writers(workloads):
    """A writer on each node: on a raw device, or on a file system."""
    writers = []
    for number, name in enumerate(workloads.cluster.nodes):
        block = number % 2 == 0
        workloads.claim(name, size="64Mi", **({"volumeMode": "Block"} if block else {}))
        writers.append(Writer(workloads, f"writer-{name}", name, block=block, nodeName=name))
    return [writer.goes_on() for writer in writers]


def data_path_is_settled(cluster):
    """As many pods as nodes, all of them ready; none of the old ones is left."""
    pods = deploy.pods(cluster, "datapath")
    ready = [
        pod
        for pod in pods
        if all(status["ready"] for status in pod["status"].get("containerStatuses", [{"ready": False}]))
    ]
    return len(pods) == len(ready) == len(cluster.nodes)


@pytest.mark.timeout(120 + 60 * ROUNDS)
def test_a_rolling_update_of_the_data_path_is_not_noticed_by_a_writer_on_each_node(workloads, writers):
    cluster = workloads.cluster
    for number in reversed(range(ROUNDS)):
        before = plugin_pods(cluster)
        # In the end as it was.
        changed = {"podAnnotations": {"test": f"{workloads.namespace}-{number}"}} if number else {}
        deploy.install(cluster, datapath=changed)
        for writer in writers:
            writer.goes_on()
        assert replaced(before, plugin_pods(cluster)) == {"controller": 0, "node": 0, "datapath": 3}
        wait_until(lambda: data_path_is_settled(cluster), 60, "the old pods have ended", pause=0.2)
    for writer in writers:
        writer.stop()
