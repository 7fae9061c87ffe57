"""`./dev bench calm`: a hard life without a dead node, in which nothing may be failed over.

Uses the cluster of `./dev cluster up` if it runs, or makes one and removes it. A writer runs on each node.
Meanwhile everything but a dead node happens: bench/troubles.py has the list. In the end no NodeFence was
made, each pod is the one that it was at the start, and all that was written is there.

The volumes are of `durability: sync`. A cached one fails for good when the storage host loses its power with
writes that are not flushed, and its pod is then replaced, as it should be.

The machine's clock is not set, as all hosts share it: controllers and node plugins have clocks of their own,
which step (bench/clocks.py).

What was found, the troubles at that time, and the controllers' logs are in build/calm/.
"""

import argparse
import collections
import contextlib
import json
import re
import subprocess
import sys
import time

from bench.clocks import Clocks
from bench.on_cluster import benchmark
from bench.troubles import HardLife
from cluster import deploy
from harness.places import ROOT
from kube.failover.watching import place

TOLD_EACH = 300
LOOK_EACH, COUNT_EACH = 1, 10  # seconds
# The kubelet restarts a container after at most five minutes. A sidecar ends with each API server.
LONGEST_BACK_OFF = 330
DECIDED = re.compile(r"^lunkeeper_failover_decided_total (\d+)", re.MULTILINE)


class Findings:
    """What must not be: NodeFences, decisions to make one, and pods that are no longer the first ones."""

    def __init__(self, failover, workloads, folder):
        self.failover, self.workloads, self.folder = failover, workloads, folder
        self.kubectl = failover.kubectl
        self.fences = {}  # by uid
        self.pods = collections.defaultdict(set)  # {name: uids}
        self.decisions = {}  # {(uid of a controller's pod, restarts): its count}

    def said(self, *arguments):
        """What kubectl says; nothing while nobody answers."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = self.kubectl.attempt(*arguments, seconds=20)
            if done.returncode == 0:
                return done.stdout
        return ""

    def items(self, *arguments):
        listed = self.said("get", *arguments, "-o", "json")
        return json.loads(listed)["items"] if listed else []

    def look(self):
        """Tells what is new, and saves what the controllers said, before they are gone."""
        new = []
        for each in self.items("nodefences,pods", *self.workloads.here):
            name, uid = each["metadata"]["name"], each["metadata"]["uid"]
            if each["kind"] == "Pod":
                if self.pods[name] and uid not in self.pods[name]:
                    new.append(f"{name} is another pod")
                self.pods[name].add(uid)
            else:
                if uid not in self.fences:
                    new.append(f"a NodeFence: {json.dumps(each)}")
                self.fences[uid] = each
        if new:
            self.tell(new)
            self.save_all_logs()

    def tell(self, findings):
        now = time.strftime("%H:%M:%S", time.gmtime())
        with open(self.folder / "findings.log", "a") as log:
            for text in findings:
                print(f"{now} {text}", flush=True)
                log.write(f"{now} {text}\n")

    def count_decisions(self):
        """By the controllers' own count, as far as they live and are asked in time."""
        for pod in self.plugins("controller"):
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            page = self.said(
                "get", "--raw", f"/api/v1/namespaces/{deploy.NAMESPACE}/pods/{name}:9809/proxy/metrics"
            )
            if counted := DECIDED.search(page):
                statuses = pod["status"].get("containerStatuses", [])
                lives = sum(each["restartCount"] for each in statuses if each["name"] == "lunkeeper")
                self.decisions[uid, lives] = int(counted[1])

    def save_log(self, pod):
        """Of one controller, of the life before this one too."""
        name = pod["metadata"]["name"]
        here = (f"--namespace={deploy.NAMESPACE}", "--container=lunkeeper")
        for suffix, which in (("", ()), (".previous", ("--previous",))):
            if said := self.said("logs", name, *here, *which):
                (self.folder / f"{name}{suffix}.log").write_text(said)

    def plugins(self, component):
        """Their pods, as far as somebody answers."""
        selector = f"--selector=app.kubernetes.io/component={component}"
        return self.items("pods", f"--namespace={deploy.NAMESPACE}", selector)

    def save_all_logs(self):
        for component in ("controller", "node"):
            for pod in self.plugins(component):
                self.save_log(pod)

    def suspicions(self):
        """{what a controller said of a node: how often}, by the logs that were saved."""
        said = "\n".join(log.read_text() for log in self.folder.glob("*controller*.log"))
        return collections.Counter(re.findall(r'"(seen: [^"]+)"', said))

    def failovers(self):
        return max(len(self.fences), sum(self.decisions.values()) - self.decided_before)

    def begin(self):
        """Here the life begins: what was decided before does not count."""
        self.decided_before = 0
        self.count_decisions()
        self.decided_before = sum(self.decisions.values())
        self.look()

    def deletions(self):
        return sum(len(uids) - 1 for uids in self.pods.values())


def watch(findings, writers, minutes, life):
    began = told = counted = time.monotonic()
    while (now := time.monotonic()) - began < 60 * minutes:
        findings.look()
        if now - counted > COUNT_EACH:
            counted = now
            findings.count_decisions()
        if now - told > TOLD_EACH:
            told = now
            show((now - began) / 60, findings, writers, life)
        time.sleep(LOOK_EACH)


def show(minutes, findings, writers, life):
    troubles = ", ".join(f"{count} {what}" for what, count in life.counts.items())
    writes = sum(each.writer.acknowledged() for each in writers)
    print(
        f"{minutes:5.1f} min: {findings.failovers()} failovers, {findings.deletions()} deletions; "
        f"{troubles}; {writes} writes acknowledged",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(prog="./dev bench calm", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument(
        "--pace", type=float, default=1, help="how many times faster the troubles come (default: %(default)s)"
    )
    options = parser.parse_args()
    folder = ROOT / "build/calm" / time.strftime("%m%d-%H%M%S", time.gmtime())
    folder.mkdir(parents=True)
    with benchmark() as (failover, workloads), Clocks(failover.cluster) as clocks:
        sync = workloads.storage_class(parameters={"durability": "sync"})
        writers = [
            place(failover, workloads, f"db-{node}", node=node, storage_class=sync)
            for node in failover.cluster.nodes
        ]
        findings = Findings(failover, workloads, folder)
        findings.begin()
        life = HardLife(failover.cluster, clocks, folder / "diary", options.pace, findings.save_log)
        try:
            with life:
                watch(findings, writers, options.minutes, life)
        finally:
            findings.save_all_logs()
        show(options.minutes, findings, writers, life)
        failover.wait_until_plugins_are_ready(LONGEST_BACK_OFF)
        failover.end()
        findings.look()
        findings.count_decisions()
        for each in writers:
            each.lost_nothing()
    for said, times in findings.suspicions().most_common():
        print(f"  {times:4} x {said}")
    failovers, deletions = findings.failovers(), findings.deletions()
    met = failovers == deletions == 0
    print(
        f"in {options.minutes:g} minutes {failovers} false failovers and {deletions} deleted pods"
        f" (bar 0 and 0): {'met' if met else 'MISSED'}"
    )
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
