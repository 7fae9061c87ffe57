"""`./dev bench e2e`: how long pods with volumes take on the test cluster, beside the same pods without.

Times are taken from one watch of the pods: from the moment a pod is there (or is told to go) until it, or its
replacement, is ready.
"""

import json
import pathlib
import queue
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from cluster.cluster import Cluster  # noqa: E402
from cluster.kubectl import condition  # noqa: E402
from kube.workloads import Workloads, claim_spec, pod_spec  # noqa: E402

ROUNDS, MOVES, AT_ONCE = 20, 10, 50
SECONDS = 120


class Watch:
    """The changes of a namespace's pods, each with the time when it was heard of."""

    def __init__(self, workloads):
        command = [*workloads.kubectl.command, "get", "pods", *workloads.here, "--watch", "--output-watch-events", "-o", "json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.changes = queue.Queue()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            change = json.loads(line)
            self.changes.put((time.monotonic(), change["type"], change["object"]))

    def wait(self, wanted):
        """The time of the first change that `wanted(type, pod)` takes; those before it are forgotten."""
        deadline = time.monotonic() + SECONDS
        while True:
            when, kind, pod = self.changes.get(timeout=deadline - time.monotonic())
            if wanted(kind, pod):
                return when

    def close(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()


def is_ready(name=None, not_uid=None):
    return lambda kind, pod: (kind != "DELETED" and condition(pod, "Ready") and name in (None, pod["metadata"]["name"])
                              and pod["metadata"]["uid"] != not_uid)


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
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": claim_spec()}


def start_times(workloads, watch, with_volume):
    """From a new pod (and claim) to a ready one, one at a time."""
    took = []
    for number in range(ROUNDS):
        name = f"{'volume' if with_volume else 'plain'}-{number}"
        objects = [pod(name, name if with_volume else None)] + ([claim(name)] if with_volume else [])
        workloads.apply(*objects)
        began = watch.wait(lambda kind, each, name=name: kind == "ADDED" and each["metadata"]["name"] == name)
        took.append(watch.wait(is_ready(name)) - began)
        workloads.delete("pod", name)
        if with_volume:
            workloads.delete("pvc", name)
    return took


def move_times(workloads, watch, with_volume):
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
        began = watch.wait(lambda kind, each, uid=uid: each["metadata"]["uid"] == uid and going(each))
        took.append(watch.wait(is_ready(f"{name}-0", not_uid=uid)) - began)
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
    middle = statistics.median(took)
    more = f", {(middle - statistics.median(than)) * 1000:+.0f} ms to a pod without" if than else ""
    spread = f"{min(took) * 1000:.0f}–{max(took) * 1000:.0f}, n={len(took)}"
    print(f"{title:<44} p50 {middle * 1000:5.0f} ms{more}   ({spread})", flush=True)


def main():
    workloads = Workloads(Cluster())
    watch = Watch(workloads)
    try:
        plain = start_times(workloads, watch, with_volume=False)
        show("pod without a volume to Running", plain)
        show("claim and pod with a fresh ext4 to Running", start_times(workloads, watch, with_volume=True), plain)
        plain = move_times(workloads, watch, with_volume=False)
        show("move of a pod without a volume", plain)
        show("move of a pod with a volume", move_times(workloads, watch, with_volume=True), plain)
        print(f"{AT_ONCE} claims and pods at once, the last is Running after {all_at_once(workloads, watch):.1f} s")
    finally:
        watch.close()
        workloads.remove()


if __name__ == "__main__":
    main()
