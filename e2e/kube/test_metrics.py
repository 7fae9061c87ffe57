"""Metrics of the plugin and of volumes."""

import json
import re

from cluster.deploy import NAMESPACE
from harness.cleanup import wait_until


def test_every_pod_of_the_plugin_gives_its_metrics(workloads):
    workloads.pod_with_claim("reader")
    seen = set()
    plugins = "app.kubernetes.io/component in (controller,node)"
    for pod in workloads.kubectl.items("pods", f"--namespace={NAMESPACE}", f"--selector={plugins}"):
        where = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}:9809/proxy/metrics"
        shown = workloads.kubectl("get", "--raw", where)
        seen |= set(re.findall(r'lunkeeper_rpc_duration_seconds_count\{[^}]*method="([^"]+)"', shown))
    assert {"csi.v1.Controller/CreateVolume", "csi.v1.Node/NodeStageVolume"} <= seen, seen


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
