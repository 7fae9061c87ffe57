"""`./dev bench failover`: from a node's power failure to the first new write that was acknowledged to the replacement pod.

Uses the cluster that `./dev cluster up` made, if it runs, or makes one and takes it away. Each round ends the power of the node
where a StatefulSet's writer runs. The times of the phases come from the NodeFence's timeline, from a watch of the pods, from the
log of the plugin that staged the volume, and from the writer's own record; all are of this one machine's clock.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from cluster import deploy  # noqa: E402
from cluster.running import running_cluster  # noqa: E402
from harness.cleanup import interrupt_on_sigterm, wait_until  # noqa: E402
from kube.bench import Watch  # noqa: E402
from kube.failover.watching import Failover, Placed, moments  # noqa: E402
from kube.workloads import Workloads  # noqa: E402
from kube.writer import Writer  # noqa: E402

ROUNDS, SECONDS = 20, 60
BAR_P50, BAR_WORST = 4.5, 6.0
PHASES = ["detect", "decide", "fence", "delete", "schedule", "stage", "start"]


def first_new_write(writer, before):
    """The time when more than `before` writes are acknowledged."""
    deadline = time.time() + SECONDS
    seen = b""
    while time.time() < deadline:
        now, data = time.time(), writer.record.read_bytes()
        if data != seen and writer.acknowledged() > before:
            return now
        seen = data
        time.sleep(0.002)
    raise TimeoutError(f"nothing was written for {SECONDS} s\n{writer.said()}")


def replaced(watch, name, old):
    """When the pod that is not `old` was made, and when it was given a node; as the wall clock has it, which the cluster uses."""
    behind, created = time.time() - time.monotonic(), None
    while True:
        when, _, pod = watch.changes.get(timeout=SECONDS)
        if pod["metadata"]["name"] != name or pod["metadata"]["uid"] == old:
            continue
        created = created or when
        if "nodeName" in pod["spec"]:
            return created + behind, when + behind


def timeline(fence):
    """{event: when it was first said}."""
    return {event: at for at, event, _ in reversed(moments(fence))}


def published_at(failover, node, since):
    """When the plugin of that node had published a volume, by its log."""
    pod = next(pod for pod in failover.plugin_pods("node") if pod["spec"]["nodeName"] == node)

    def said():
        log = failover.kubectl("logs", pod["metadata"]["name"], f"--namespace={deploy.NAMESPACE}", "--tail=200")
        for line in reversed(log.splitlines()):
            if "NodePublishVolume" in line:
                at = datetime.datetime.fromisoformat(json.loads(line)["time"].replace("Z", "+00:00")).timestamp()
                return at if at > since else None
        return None
    return wait_until(said, 20, f"the plugin of {node} says when it published", pause=0.2)


def one_round(failover, placed, watch):
    """{phase: seconds}, and the whole."""
    old = placed.uid()
    host = placed.host
    began = time.time()
    host.power_off()
    before = placed.writer.acknowledged()
    wrote = first_new_write(placed.writer, before)
    created, scheduled = replaced(watch, placed.writer.pod, old)
    there = placed.pod()["spec"]["nodeName"]
    published = published_at(failover, there, began)
    said = timeline(failover.fence(placed.node))
    marks = [began, said["Decided"], said["Fencing"], said["Fenced"], created, scheduled, published, wrote]
    phases = {phase: marks[index + 1] - marks[index] for index, phase in enumerate(PHASES)}
    return phases, wrote - began


def show(number, phases, whole):
    shares = "  ".join(f"{name} {took * 1000:5.0f}" for name, took in phases.items())
    print(f"{number:>5}  {whole * 1000:6.0f} ms   {shares}", flush=True)


def summarise(rounds):
    wholes = sorted(whole for _, whole in rounds)
    middle, worst = statistics.median(wholes), wholes[-1]
    shares = {name: statistics.median(phases[name] for phases, _ in rounds) for name in PHASES}
    print("\nmedian of each phase, ms: " + ", ".join(f"{name} {took * 1000:.0f}" for name, took in shares.items()))
    print(f"power-off to the first new acknowledged write: p50 {middle:.2f} s (bar {BAR_P50}), "
          f"worst {worst:.2f} s (bar {BAR_WORST}), n={len(rounds)}")
    return middle <= BAR_P50 and worst <= BAR_WORST


def main():
    parser = argparse.ArgumentParser(prog="./dev bench failover", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    interrupt_on_sigterm()
    rounds = []
    with running_cluster() as cluster:
        failover = Failover(cluster)
        failover.end()
        workloads = Workloads(cluster)
        writer = Writer(workloads, "db", {"size": "64Mi", "volumeMode": "Block"}, block=True, owner="StatefulSet")
        try:
            for number in range(1, options.rounds + 1):
                writer.goes_on()
                time.sleep(1)  # as one that has run for a while
                watch = Watch(workloads, "pods")
                try:
                    rounds.append(one_round(failover, Placed(failover, workloads, writer), watch))
                finally:
                    watch.close()
                show(number, *rounds[-1])
                failover.end()
            Placed(failover, workloads, writer).lost_nothing()
        finally:
            failover.end()
            workloads.remove()
    sys.exit(0 if summarise(rounds) else 1)


if __name__ == "__main__":
    main()
