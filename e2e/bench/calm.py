"""`./dev bench calm`: a hard life without a dead node, in which nothing may be failed over.

Uses the cluster of `./dev cluster up` if it runs, or makes one and removes it. A writer runs on each node.
Meanwhile node plugins stop for up to two seconds, nodes lose packets, and the API server is killed each
minute.
"""

import argparse
import collections
import json
import random
import re
import sys
import threading
import time

from bench.on_cluster import benchmark
from cluster import deploy, faults
from kube.failover.watching import place

PLUGIN = ("lunkeeper", "serve", "--mode=node")
LONGEST_STOP, MOST_LOSS = 2.0, 20  # seconds, percent
API_PERIOD = 60
TOLD_EACH = 300
# The kubelet restarts a container after at most five minutes. A sidecar ends with each API server.
LONGEST_BACK_OFF = 330
DECIDED = re.compile(r"^lunkeeper_failover_decided_total (\d+)", re.MULTILINE)


class HardLife:
    """Causes troubles, each on a thread of its own, until it is left; counts them."""

    def __init__(self, cluster):
        self.nodes, self.control = list(cluster.nodes.values()), cluster.control
        self.over, self.counts = threading.Event(), collections.Counter()
        self.threads = [
            threading.Thread(target=trouble)
            for trouble in (self.stop_plugins, self.lose_packets, self.kill_api_server)
        ]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *unused):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def stop_plugins(self):
        while not self.over.wait(random.uniform(1, 6)):
            pids = faults.find_processes(random.choice(self.nodes), *PLUGIN)
            with faults.stopped(pids):
                time.sleep(random.uniform(0.2, LONGEST_STOP))
            self.counts["stops of a plugin"] += 1

    def lose_packets(self):
        while not self.over.wait(random.uniform(1, 10)):
            node = random.choice(self.nodes)
            faults.lose_packets(node, random.randint(1, MOST_LOSS))
            self.over.wait(random.uniform(5, 20))
            faults.heal(node)
            self.counts["times of packet loss"] += 1

    def kill_api_server(self):
        while not self.over.wait(API_PERIOD):
            faults.kill_service(self.control, "kube-apiserver")
            self.counts["deaths of the API server"] += 1


def fences_now(failover):
    """{uid: the NodeFence}; none while nobody answers."""
    shown = failover.kubectl.attempt("get", "nodefences", "-o", "json")
    fences = json.loads(shown.stdout)["items"] if shown.returncode == 0 else []
    return {fence["metadata"]["uid"]: fence for fence in fences}


def watch(failover, writers, minutes, life):
    """Every NodeFence that there was meanwhile."""
    began = told = time.monotonic()
    seen = {}
    while time.monotonic() - began < 60 * minutes:
        for uid, fence in fences_now(failover).items():
            if uid not in seen:
                print(f"a NodeFence: {json.dumps(fence)}", flush=True)
            seen[uid] = fence
        if time.monotonic() - told > TOLD_EACH:
            told = time.monotonic()
            show((told - began) / 60, seen, writers, life)
        time.sleep(0.5)
    return seen


def decided(failover):
    """By the controllers' own count."""
    pages = [
        failover.kubectl(
            "get",
            "--raw",
            f"/api/v1/namespaces/{deploy.NAMESPACE}/pods/{pod['metadata']['name']}:9809/proxy/metrics",
        )
        for pod in deploy.pods(failover.cluster, "controller")
    ]
    return sum(int(DECIDED.search(page)[1]) for page in pages)


def suspicions(failover):
    """{what a controller said of a node: how often}, as far as its log goes back."""
    logs = [
        failover.kubectl(
            "logs", pod["metadata"]["name"], f"--namespace={deploy.NAMESPACE}", "--container=lunkeeper"
        )
        for pod in deploy.pods(failover.cluster, "controller")
    ]
    return collections.Counter(re.findall(r'"(seen: [^"]+)"', "\n".join(logs)))


def show(minutes, fences, writers, life):
    troubles = ", ".join(f"{count} {what}" for what, count in life.counts.items())
    writes = sum(each.writer.acknowledged() for each in writers)
    print(
        f"{minutes:5.1f} min: {len(fences)} NodeFences; {troubles}; {writes} writes acknowledged", flush=True
    )


def main():
    parser = argparse.ArgumentParser(prog="./dev bench calm", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    options = parser.parse_args()
    with benchmark() as (failover, workloads):
        writers = [place(failover, workloads, f"db-{node}", node=node) for node in failover.cluster.nodes]
        before = decided(failover)
        with HardLife(failover.cluster) as life:
            fences = watch(failover, writers, options.minutes, life)
        show(options.minutes, fences, writers, life)
        failover.wait_until_plugins_are_ready(LONGEST_BACK_OFF)
        failover.end()
        for each in writers:
            each.lost_nothing()
        count = max(len(fences), decided(failover) - before)
        for said, times in suspicions(failover).most_common():
            print(f"  {times:4} x {said}")
    print(
        f"false failovers in {options.minutes:g} minutes: {count}"
        f" (bar 0: {'met' if count == 0 else 'MISSED'})"
    )
    sys.exit(0 if count == 0 else 1)


if __name__ == "__main__":
    main()
