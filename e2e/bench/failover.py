"""`./dev bench failover`: from a node's failure to the first new write that was acknowledged to the
replacement pod.

Uses the cluster of `./dev cluster up` if it runs, or makes one and removes it. Each round fails the node
where a StatefulSet's writer runs, in one of the ways of MODES. The times of the phases come from the
NodeFence's timeline, a watch of the pods, the log of the plugin that staged the volume, and the writer's
record. All of them use this machine's clock.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable

from bench.on_cluster import SECONDS, benchmark, timeline
from bench.watch import Watch
from cluster import deploy, faults
from cluster.kubectl import seconds_of
from harness.cleanup import wait_until
from kube.failover.watching import Placed, first_new_write
from kube.writer import Writer

# `decide` ends with the request to the array. When the path to the storage is lost, pods are evicted before
# that.
PHASES = ["detect", "decide", "fence", "delete", "schedule", "stage", "start"]


def power_off(placed):
    placed.host.power_off()


def reboot(placed):
    """In order, and not drained. The machine is back when the round is over: a real one takes minutes."""
    placed.host.shut_down()


def lose_storage(placed):
    faults.cut_off(placed.host, hosts=[placed.failover.cluster.storage])


def anywhere(placed):
    return placed


def apart_from_the_leader(placed):
    """Not on the leader's node: its power-off has a mode and a bar of its own, and a leader without a path
    to the array first resigns, after 5 s."""
    leading = placed.failover.leader()
    if placed.node == leading:
        move_to(
            placed.workloads,
            placed.writer.pod,
            next(node for node in placed.failover.cluster.nodes if node != leading),
        )
    return Placed(placed.failover, placed.workloads, placed.writer)


def beside_the_leader(placed):
    """The same writer on the node where the leading controller runs."""
    leading = placed.failover.leader()
    if placed.node != leading:
        move_to(placed.workloads, placed.writer.pod, leading)
    return Placed(placed.failover, placed.workloads, placed.writer)


def move_to(workloads, pod, node):
    with workloads.new_pods_go_to(node):
        workloads.delete("pod", pod)
        workloads.wait_for_pod(pod)


NONE = float("inf")  # no bar
MOUNT_DEATHS = "lunkeeper.io/mount-deaths"


class FastWriter(Writer):
    """An application that never waits."""

    PAUSE_MS = 0


@dataclasses.dataclass
class Mode:
    title: str
    rounds: int
    p50: float
    worst: float  # bars, in seconds
    fail: Callable
    place: Callable = anywhere


MODES = {
    "power": Mode("power-off", 40, 3.5, 4.5, power_off, apart_from_the_leader),
    "storage": Mode("the path to the storage is lost", 10, NONE, 5.5, lose_storage, apart_from_the_leader),
    "leader": Mode("power-off of the leader's own node", 40, NONE, 6.0, power_off, beside_the_leader),
    "reboot": Mode("a reboot in order, without a drain", 10, NONE, 6.0, reboot),
}


def replaced(watch, name, old):
    """When the pod that is not `old` was created and when it was scheduled, by the wall clock."""
    behind, created = time.time() - time.monotonic(), None
    while True:
        when, _, pod = watch.changes.get(timeout=SECONDS)
        if pod["metadata"]["name"] != name or pod["metadata"]["uid"] == old:
            continue
        created = created or when
        if "nodeName" in pod["spec"]:
            return created + behind, when + behind


def published_at(failover, node, since):
    """When the plugin of that node had published a volume, by its log."""
    pod = next(pod for pod in deploy.pods(failover.cluster, "node") if pod["spec"]["nodeName"] == node)

    def said():
        log = failover.kubectl(
            "logs", pod["metadata"]["name"], f"--namespace={deploy.NAMESPACE}", "--tail=200"
        )
        for line in reversed(log.splitlines()):
            if "NodePublishVolume" in line:
                at = seconds_of(json.loads(line)["time"])
                return at if at > since else None
        return None

    return wait_until(said, 20, f"the plugin of {node} says when it published", pause=0.2)


def one_round(failover, placed, pods, fences, fail):
    """{phase: seconds}, and the whole."""
    old = placed.uid()
    began = time.time()
    fail(placed)
    time.sleep(0.2)  # for writes in flight
    wrote = first_new_write(placed.writer, placed.writer.acknowledged())
    created, scheduled = replaced(pods, placed.writer.pod, old)
    there = placed.pod()["spec"]["nodeName"]
    published = published_at(failover, there, began)
    said = timeline(fences, placed.node)
    marks = [began, said["Decided"], said["Fencing"], said["Fenced"], created, scheduled, published, wrote]
    phases = {phase: marks[index + 1] - marks[index] for index, phase in enumerate(PHASES)}
    return phases, wrote - began


def rounds_of(mode, count, failover, workloads, writer):
    """[({phase: seconds}, the whole)]."""
    print(f"\n{mode.title}, {count} rounds, ms:", flush=True)
    rounds = []
    for number in range(1, count + 1):
        writer.goes_on()
        placed = mode.place(Placed(failover, workloads, writer))
        writer.goes_on()
        # Rounds are short: the second node in a row that dies within a minute would keep the volume.
        failover.kubectl("annotate", "pv", "--all", f"{MOUNT_DEATHS}-")
        time.sleep(1)  # as one that has run for a while
        pods, fences = Watch(workloads, "pods"), Watch(workloads, "nodefences")
        try:
            phases, whole = one_round(failover, placed, pods, fences, mode.fail)
        finally:
            pods.close()
            fences.close()
        rounds.append((phases, whole))
        shares = "  ".join(f"{name} {took * 1000:5.0f}" for name, took in phases.items())
        print(f"{number:>5}  {whole * 1000:6.0f}   {shares}", flush=True)
        failover.end()
    return rounds


def bar(seconds):
    return "" if seconds == NONE else f" (bar {seconds})"


def summarise(mode, rounds):
    """Tells, and whether the bars are met."""
    wholes = sorted(whole for _, whole in rounds)
    middle, worst = statistics.median(wholes), wholes[-1]
    shares = {name: statistics.median(phases[name] for phases, _ in rounds) for name in PHASES}
    met = middle <= mode.p50 and worst <= mode.worst
    print("median of each phase: " + ", ".join(f"{name} {took * 1000:.0f}" for name, took in shares.items()))
    print(
        f"{mode.title} to the first new acknowledged write: p50 {middle:.2f} s{bar(mode.p50)}, "
        f"worst {worst:.2f} s{bar(mode.worst)}, "
        f"n={len(rounds)}: {'met' if met else 'MISSED'}",
        flush=True,
    )
    return met


def main():
    parser = argparse.ArgumentParser(prog="./dev bench failover", description=__doc__.split("\n")[0])
    parser.add_argument("modes", nargs="*", metavar="MODE", help=f"of {', '.join(MODES)}; default: all")
    parser.add_argument(
        "--rounds",
        type=int,
        help="of each mode; default: "
        + ", ".join(f"{mode.rounds} of {name}" for name, mode in MODES.items()),
    )
    options = parser.parse_args()
    if unknown := set(options.modes) - set(MODES):
        parser.error(f"no such mode: {', '.join(sorted(unknown))}; there are: {', '.join(MODES)}")
    met = []
    with benchmark() as (failover, workloads):
        writer = FastWriter(
            workloads, "db", {"size": "64Mi", "volumeMode": "Block"}, block=True, owner="StatefulSet"
        )
        for mode in [MODES[name] for name in options.modes or MODES]:
            met.append(
                summarise(mode, rounds_of(mode, options.rounds or mode.rounds, failover, workloads, writer))
            )
        Placed(failover, workloads, writer).lost_nothing()
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
