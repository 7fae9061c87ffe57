"""`./dev bench e2e`: how long pods with volumes take on the test cluster, beside the same pods without.

Times come from watches: from the creation of a pod (or its deletion) until it, or its replacement, is ready,
with the steps between. The plugin's metrics say how much of that its own calls took.
"""

import collections
import re
import statistics
import time

from bench.watch import Watch
from cluster.cluster import Cluster
from cluster.deploy import NAMESPACE
from cluster.kubectl import condition
from kube.workloads import Workloads, claim_spec, pod_spec

ROUNDS, MOVES, AT_ONCE = 20, 10, 50
PLUGINS = "app.kubernetes.io/component in (controller,node)"


class Calls:
    """How long the plugin's calls took meanwhile, by its own metrics."""

    SHOWN = [
        "Controller/CreateVolume",
        "Node/NodeStageVolume",
        "Node/NodePublishVolume",
        "Node/NodeUnpublishVolume",
        "Node/NodeUnstageVolume",
    ]
    FIGURE = re.compile(
        r'lunkeeper_rpc_duration_seconds_(sum|count)\{[^}]*method="csi\.v1\.([^"]+)"[^}]*\} (\S+)'
    )

    def __init__(self, kubectl):
        self.kubectl = kubectl
        self.before = self._look()

    def _look(self):
        figures = collections.Counter()
        for pod in self.kubectl.items("pods", f"--namespace={NAMESPACE}", f"--selector={PLUGINS}"):
            where = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}:9809/proxy/metrics"
            for which, method, value in self.FIGURE.findall(self.kubectl("get", "--raw", where)):
                figures[which, method] += float(value)
        return figures

    def show(self):
        took = self._look()
        took.subtract(self.before)
        means = [
            f"{method.partition('/')[2]} {took['sum', method] / took['count', method] * 1000:.0f}"
            for method in self.SHOWN
            if took["count", method]
        ]
        print(f"    of it in our calls, mean ms: {', '.join(means)}", flush=True)


def is_ready(name=None, not_uid=None):
    return lambda kind, pod: (
        kind != "DELETED"
        and condition(pod, "Ready")
        and name in (None, pod["metadata"]["name"])
        and pod["metadata"]["uid"] != not_uid
    )


def is_scheduled(name):
    return lambda kind, pod: (
        kind != "DELETED" and pod["metadata"]["name"] == name and "nodeName" in pod["spec"] and not going(pod)
    )


def is_bound(name):
    return lambda kind, claim: claim["metadata"]["name"] == name and claim["status"].get("phase") == "Bound"


def going(pod):
    return "deletionTimestamp" in pod["metadata"]


def pod(name, claim=None):
    spec = pod_spec()
    if claim:
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    else:
        del spec["containers"][0]["volumeMounts"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def claim(name):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": claim_spec(),
    }


def start_times(workloads, pods, claims=None):
    """From a new pod (and claim) to a ready one, one at a time: [{step: seconds from the beginning}].

    `claims`: the watch of claims; without it the pods have no volume.
    """
    took = []
    for number in range(ROUNDS):
        name = f"{'volume' if claims else 'plain'}-{number}"
        workloads.apply(*[pod(name, name if claims else None)] + ([claim(name)] if claims else []))
        began = pods.wait(lambda kind, each, name=name: kind == "ADDED" and each["metadata"]["name"] == name)
        steps = {}
        if claims:
            steps["claim bound"] = claims.wait(is_bound(name)) - began
        steps["scheduled"] = pods.wait(is_scheduled(name)) - began
        steps["ready"] = pods.wait(is_ready(name)) - began
        took.append(steps)
        workloads.delete("pod", name)
        if claims:
            workloads.delete("pvc", name)
    return took


def move_times(workloads, pods, with_volume):
    """From the deletion of a StatefulSet's pod to its ready replacement on another node."""
    name = "mover" if with_volume else "plain-mover"
    workloads.stateful_set(name, claims=with_volume)
    workloads.wait_for_pod(f"{name}-0")
    took = []
    for _ in range(MOVES):
        old = workloads.kubectl.get("pod", f"{name}-0", *workloads.here)
        node, uid = old["spec"]["nodeName"], old["metadata"]["uid"]
        workloads.kubectl("cordon", node)
        workloads.delete("pod", f"{name}-0", "--wait=false")
        began = pods.wait(lambda kind, each, uid=uid: each["metadata"]["uid"] == uid and going(each))
        gone = pods.wait(lambda kind, each, uid=uid: kind == "DELETED" and each["metadata"]["uid"] == uid)
        scheduled, ready = pods.wait(is_scheduled(f"{name}-0")), pods.wait(is_ready(f"{name}-0", not_uid=uid))
        took.append({"old pod gone": gone - began, "scheduled": scheduled - began, "ready": ready - began})
        workloads.kubectl("uncordon", node)
    workloads.delete("statefulset", name)
    return took


def all_at_once(workloads, watch):
    names = [f"many-{number}" for number in range(AT_ONCE)]
    began = time.monotonic()
    workloads.apply(*[each for name in names for each in (pod(name, name), claim(name))])
    missing = set(names)

    def last(kind, each):
        if is_ready()(kind, each):
            missing.discard(each["metadata"]["name"])
        return not missing

    return watch.wait(last) - began


def show(title, took, than=None):
    ready = [steps["ready"] for steps in took]
    middle = statistics.median(ready)
    more = (
        f", {(middle - statistics.median(steps['ready'] for steps in than)) * 1000:+.0f} ms to a pod without"
        if than
        else ""
    )
    spread = f"{min(ready) * 1000:.0f}–{max(ready) * 1000:.0f}, n={len(ready)}"
    print(f"{title:<44} p50 {middle * 1000:5.0f} ms{more}   ({spread})")
    steps = ", ".join(
        f"{step} {statistics.median(each[step] for each in took) * 1000:.0f}" for step in took[0]
    )
    print(f"    p50 ms from the beginning: {steps}", flush=True)


def main():
    workloads = Workloads(Cluster())
    pods, claims = Watch(workloads, "pods"), Watch(workloads, "pvc")
    try:
        plain = start_times(workloads, pods)
        show("pod without a volume to Running", plain)
        calls = Calls(workloads.kubectl)
        show("claim and pod with a fresh ext4 to Running", start_times(workloads, pods, claims), plain)
        calls.show()
        plain = move_times(workloads, pods, with_volume=False)
        show("move of a pod without a volume", plain)
        calls = Calls(workloads.kubectl)
        show("move of a pod with a volume", move_times(workloads, pods, with_volume=True), plain)
        calls.show()
        calls = Calls(workloads.kubectl)
        print(
            f"{AT_ONCE} claims and pods at once, the last is Running after"
            f" {all_at_once(workloads, pods):.1f} s"
        )
        calls.show()
    finally:
        pods.close()
        claims.close()
        workloads.remove()


if __name__ == "__main__":
    main()
