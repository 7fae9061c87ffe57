"""`./dev bench evacuation`: from the decision to fail a node over until the last of its many pods is deleted.

Uses the cluster of `./dev cluster up` if it runs, or makes one and removes it. All pods of a StatefulSet run
on one node, each with two volumes and a writer to each of them. Each round powers that node off. The decision
and the fence are taken from the NodeFence's timeline, the end and the number of calls from the API server's
audit log. The API server, etcd, the array and the other nodes run on the same machine.
"""

import argparse
import collections
import http
import statistics
import sys
import time

from bench.on_cluster import SECONDS, benchmark, timeline
from bench.watch import Watch
from cluster.kubectl import seconds_of
from harness.cleanup import wait_until
from kube import audit
from kube.many import Many

BAR = 1.0  # seconds
START_SECONDS = 600  # for all of them, on this machine
LATE_SECONDS = 5  # events come later than what they report
QUIET_SECONDS = 8  # no requests meanwhile, which would load the API server
PAUSE_MS = 1000  # of each writer: their own work is not what is measured


def gather(workloads, many, node):
    """Moves every pod to the node, and waits until all of them write there."""
    with workloads.new_pods_go_to(node):
        if elsewhere := [
            pod["metadata"]["name"] for pod in many.now() if pod["spec"].get("nodeName", node) != node
        ]:
            workloads.kubectl("delete", "pods", *workloads.here, "--wait=false", *elsewhere)
        wait_until(
            lambda: len(many.now()) == len(many.pods) and many.nodes() == {node},
            START_SECONDS,
            lambda: f"all run on {node}; they are on {many.nodes()}",
            pause=1,
        )
        many.all_go_on(START_SECONDS)


def asked(cluster, since):
    """The audit entries of the controllers' requests since then, without the watches."""
    return list(
        audit.requests(
            cluster,
            lambda entry: (
                "objectRef" in entry
                and entry["verb"] != "watch"
                and entry.get("userAgent", "").startswith("lunkeeper/")
                and seconds_of(entry["requestReceivedTimestamp"]) >= since
            ),
        )
    )


def last_deletion(entries, pods):
    """When the API server had deleted the last of so many pods."""
    ends = [
        seconds_of(entry["stageTimestamp"])
        for entry in entries
        if audit.right_of(entry) == ("", "pods", "delete")
        and entry["responseStatus"]["code"] == http.HTTPStatus.OK
    ]
    assert len(ends) == pods, f"{len(ends)} pods of {pods} were deleted"
    return max(ends)


def one_round(failover, workloads, many, node):
    """{phase: seconds}, the time from the decision on, and the requests until a while after the last
    deletion.
    """
    uids = {pod["metadata"]["uid"] for pod in many.now()}
    fences = Watch(workloads, "nodefences")
    try:
        began = time.time()
        failover.host(node).power_off()
        time.sleep(QUIET_SECONDS)
        wait_until(
            lambda: not uids & {pod["metadata"]["uid"] for pod in many.now()},
            SECONDS,
            lambda: f"all pods are deleted\n{failover.tell()}",
            pause=1,
        )
        time.sleep(LATE_SECONDS)
        said = timeline(fences, node)
    finally:
        fences.close()
    entries = asked(failover.cluster, said["Decided"])
    ended = last_deletion(entries, len(uids))
    phases = {
        "before, until the decision": said["Decided"] - began,
        "record": said["Fencing"] - said["Decided"],
        "fence": said["Fenced"] - said["Fencing"],
        "delete": ended - said["Fenced"],
    }
    late = ended + LATE_SECONDS
    calls = collections.Counter(
        audit.right_of(entry) for entry in entries if seconds_of(entry["requestReceivedTimestamp"]) < late
    )
    return phases, ended - said["Decided"], calls


def show(number, phases, whole, calls, pods):
    shares = ", ".join(f"{name} {took * 1000:.0f}" for name, took in phases.items())
    print(
        f"{number:>3}: {whole * 1000:.0f} ms from the decision until the last was deleted   ({shares})",
        flush=True,
    )
    told = ", ".join(f"{count} {verb} {resource}" for (_, resource, verb), count in calls.most_common())
    print(f"     {sum(calls.values()) / pods:.2f} calls a pod: {told}", flush=True)


def measure(failover, workloads, options):
    """The time of each round, in seconds."""
    nodes = [node for node in failover.cluster.nodes if node != failover.leader()]
    with workloads.new_pods_go_to(nodes[0]):
        many = Many(workloads, options.pods, PAUSE_MS)
        many.all_go_on(START_SECONDS)
    took = []
    for number in range(options.rounds):
        node = nodes[number % len(nodes)]
        gather(workloads, many, node)
        phases, whole, calls = one_round(failover, workloads, many, node)
        show(number + 1, phases, whole, calls, options.pods)
        took.append(whole)
        many.all_go_on(START_SECONDS)
        failover.end()
    many.lost_nothing()
    return took


def main():
    parser = argparse.ArgumentParser(prog="./dev bench evacuation", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--pods", type=int, default=100, help="on one node, each with two volumes (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with benchmark() as (failover, workloads):
        took = measure(failover, workloads, options)
    worst = max(took)
    print(
        f"{options.pods} pods with {2 * options.pods} volumes, from the decision until all is fenced"
        f" and the last pod deleted: p50 {statistics.median(took):.2f} s, worst {worst:.2f} s (bar {BAR}),"
        f" n={len(took)}: {'met' if worst <= BAR else 'MISSED'}"
    )
    sys.exit(0 if worst <= BAR else 1)


if __name__ == "__main__":
    main()
