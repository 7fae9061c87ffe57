"""Metrics of the plugin and of volumes."""

import json
import re

from cluster.deploy import NAMESPACE
from cluster.storage import METRICS_PORT
from harness import docs
from harness.cleanup import wait_until


# There is none before something of the kind has happened.
OF_EVENTS = {
    "lunkeeper_connections_refused_total",
    "lunkeeper_failover_nodefences",
    "lunkeeper_failover_phase_seconds",
    "lunkeeper_failover_refused_total",
}


def served(cluster):
    """What all controllers, all nodes and the array's agent serve."""
    plugins = "app.kubernetes.io/component in (controller,node)"
    pods = cluster.kubectl.items("pods", f"--namespace={NAMESPACE}", f"--selector={plugins}")
    here = f"/api/v1/namespaces/{NAMESPACE}/pods"
    where = [f"{here}/{pod['metadata']['name']}:9809/proxy/metrics" for pod in pods]
    ask = ("curl", "--silent", "--fail", f"http://127.0.0.1:{METRICS_PORT}/metrics")
    agent = cluster.storage.enter(*ask, check=True, capture_output=True, text=True).stdout
    return "".join([agent, *(cluster.kubectl("get", "--raw", path) for path in where)])


def test_each_metric_of_the_page_is_read_from_the_cluster(cluster, workloads):
    """The others are in e2e/agent/test_dashboard.py, and those of gateways in e2e/ceph/test_handover.py."""
    workloads.pod_with_claim("reader")
    listed = [each for each in docs.metrics() if each[0] != docs.GATEWAYS and each[1] not in OF_EVENTS]
    assert len(listed) > 40

    def missing():
        series = re.findall(r"^(lunkeeper_\w+)(?:\{(.*)\})? ", served(cluster), re.MULTILINE)
        labels = {}
        for name, text in series:
            name = re.sub("_(bucket|count|sum)$", "", name)
            labels.setdefault(name, set()).update(re.findall(r'(\w+)="', text))
        return [name for _, name, wanted in listed if name not in labels or not wanted <= labels[name]]

    wait_until(lambda: not missing(), 30, lambda: f"all are served: {missing()}", pause=1)
    assert {"csi.v1.Controller/CreateVolume", "csi.v1.Node/NodeStageVolume"} <= set(
        re.findall(r'lunkeeper_rpc_duration_seconds_count\{[^}]*method="([^"]+)"', served(cluster))
    )


def test_kubelet_tells_how_full_a_volume_is(workloads):
    pod = workloads.pod_with_claim("writer")
    workloads.shell("writer", "dd if=/dev/zero of=/data/file bs=1M count=100 2>/dev/null && sync")

    def used():
        summary = json.loads(
            workloads.kubectl("get", "--raw", f"/api/v1/nodes/{pod['spec']['nodeName']}/proxy/stats/summary")
        )
        return next(
            (
                volume["usedBytes"]
                for each in summary["pods"]
                if each["podRef"]["namespace"] == workloads.namespace
                for volume in each.get("volume", [])
                if volume["name"] == "data"
            ),
            0,
        )

    wait_until(lambda: used() >= 100 << 20, 120, "kubelet's figure has risen", pause=1)
