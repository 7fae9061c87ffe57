"""What a failover looks like from outside: NodeFences, taints, where pods run, what nodes have left."""

import contextlib
import json
import os
import time

from cluster import deploy, faults, network
from cluster.kubectl import condition, seconds_of
from harness.cleanup import wait_until
from kube.writer import Writer

TAINT = "lunkeeper.io/fenced"
# From the fault to the replacement's first write. More than what is promised: this machine is shared.
MOVES_SECONDS = 30
# For rows of the evidence table without a probe's word: kubelet's lease has to grow old first.
SLOW_SECONDS = 60
OVER_SECONDS = 90  # from a node's return until nothing of its fence is left
READY_SECONDS = 90
REPLACEMENT_SECONDS = 60  # until a replacement must have written
COORDINATOR_PORT = 7443


class Failover:
    """Of one cluster. `end` mends every node and waits until no trace of a failover is left."""

    def __init__(self, cluster):
        self.cluster, self.kubectl = cluster, cluster.kubectl

    def host(self, node):
        return self.cluster.nodes[node]

    def fences(self):
        """{node: its NodeFence}. A machine may have been another one before; the newest counts."""
        return {fence["status"].get("node", fence["metadata"]["name"].rpartition(".")[0]): fence
                for fence in self.kubectl.items("nodefences") if "status" in fence}

    def fence(self, node):
        return self.fences().get(node)

    def instance(self, node):
        """Of the driver there, as NodeFences are named; None: it is not registered."""
        csi_node = self.kubectl.find("csinode", node) or {"spec": {}}
        return next((each["nodeID"] for each in csi_node["spec"].get("drivers") or [] if each["name"] == deploy.DRIVER), None)

    def taint(self, node):
        """The NodeFence that the node's taint names; None: no taint."""
        taints = self.kubectl.get("node", node)["spec"].get("taints", [])
        return next((each.get("value", "") for each in taints if each["key"] == TAINT), None)

    def refusals(self, node):
        """Why it is not failed over, by the events that say so."""
        events = self.kubectl.items("events", "--all-namespaces", f"--field-selector=involvedObject.name={node},reason=FailoverRefused")
        return [event["message"] for event in events]

    def fenced_at_the_array(self):
        """The instances that may have no volume, as the array itself has it."""
        return self._catalogue("SELECT node FROM fences")

    def _catalogue(self, query):
        shown = self.cluster.storage.enter("sqlite3", "-readonly", "/srv/pool/catalogue.db", query, capture_output=True,
                                           text=True, check=True)
        return shown.stdout.split()

    def wait_until_fenced(self, node, seconds=MOVES_SECONDS):
        """Until every array has its fence and the node its taint; the NodeFence."""
        def fenced():
            fence = self.fence(node)
            arrays = fence["status"].get("arrays", {}) if fence else {}
            done = arrays and all("generation" in each for each in arrays.values())
            return fence if done and self.taint(node) is not None else None
        return wait_until(fenced, seconds, lambda: f"{node} is fenced\n{self.tell()}", pause=0.2)

    def wait_until_moved(self, node, seconds=MOVES_SECONDS):
        """Until every replacement runs; the NodeFence."""
        def moved():
            fence = self.fence(node)
            return fence if fence and fence["status"].get("phase", "").startswith("moved") else None
        return wait_until(moved, seconds, lambda: f"{node}'s pods run elsewhere\n{self.tell()}", pause=0.2)

    def wait_until_over(self, node, seconds=OVER_SECONDS):
        """No NodeFence, no taint, and nothing on the node of a volume that is another's."""
        wait_until(lambda: self.fence(node) is None and self.taint(node) is None, seconds,
                   lambda: f"{node} is free again\n{self.tell()}", pause=0.3)

    def stays_quiet(self, seconds, well=lambda: True):
        """For that long nobody is fenced, and `well` holds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert not self.fences(), f"somebody is fenced\n{self.tell()}"
            assert well(), "what should go on does not"
            time.sleep(0.3)

    def wait_until_ready(self, node, seconds=READY_SECONDS):
        wait_until(lambda: condition(self.kubectl.find("node", node) or {}, "Ready"), seconds,
                   lambda: f"{node} is ready\n{self.tell()}", pause=0.3)

    def wait_until_plugins_are_ready(self, seconds=READY_SECONDS):
        def ready():
            pods = [pod for component in ("controller", "node", "datapath") for pod in deploy.pods(self.cluster, component)]
            return pods and all(condition(pod, "Ready") and "deletionTimestamp" not in pod["metadata"] for pod in pods)
        wait_until(ready, seconds, lambda: f"the plugins are ready\n{self.tell()}", pause=0.5)

    def leader(self):
        """The node where the leading controller runs."""
        pods = {pod["metadata"]["name"]: pod for pod in deploy.pods(self.cluster, "controller")}

        def found():
            lease = self.kubectl.find("lease", "lunkeeper-failover", f"--namespace={deploy.NAMESPACE}")
            holder = (lease or {}).get("spec", {}).get("holderIdentity") or "nobody"
            return next((pod["spec"]["nodeName"] for name, pod in pods.items() if holder.startswith(name)), None)
        return wait_until(found, 30, "a controller leads", pause=0.2)

    def verdict(self, node):
        """What the controllers on other nodes think of it and why: each judges for itself."""
        said = [self.kubectl.attempt("exec", f"--namespace={deploy.NAMESPACE}", pod["metadata"]["name"], "--container=lunkeeper",
                                     "--", "lunkeeper", "status", "--endpoint=unix:///csi/csi.sock").stdout
                for pod in deploy.pods(self.cluster, "controller") if pod["spec"]["nodeName"] != node]
        return "\n".join(line for each in said for line in each.split("\n") if f"node {node}." in line)

    def wait_for_verdict(self, node, words, seconds=SLOW_SECONDS):
        wait_until(lambda: words in self.verdict(node), seconds,
                   lambda: f"{words} is said of {node}; what is said is\n{self.verdict(node)}\n{self.tell()}", pause=0.3)

    @contextlib.contextmanager
    def joined(self, machine, known_as=None):
        """A spare machine as a node, for as long as it takes; in the end nothing of it is left, at the array neither."""
        try:
            self.cluster.join(machine, known_as)
            name = known_as or machine
            instance = wait_until(lambda: self.instance(name), READY_SECONDS, f"the driver is registered on {name}", pause=0.3)
            self.wait_until_plugins_are_ready()
            yield instance
            wait_until(lambda: instance not in self._catalogue("SELECT node FROM grants"), OVER_SECONDS,
                       f"{machine} has let go of its volumes", pause=0.3)
        finally:
            self.cluster.leave(machine)

    def end(self):
        """Everything healed, on, and without a trace."""
        for name, host in self.cluster.nodes.items():
            if host.pid() is None:
                host.boot()
            network.plug(host.cluster, name, True)
            faults.heal(host)
            faults.thaw(host)
        for name, host in self.cluster.nodes.items():
            if self.kubectl.find("node", name) is None and "kubelet" in host.services():
                faults.kill_service(host, "kubelet")  # it registers its node when it starts, and not again
            self.wait_until_ready(name)
            self.kubectl("uncordon", name)
        for fence in self.kubectl.items("nodefences"):
            if fence.get("spec", {}).get("requestedBy") != "evidence":
                self.kubectl("delete", "nodefence", fence["metadata"]["name"], "--wait=false")
        self.wait_until_plugins_are_ready()
        for name in self.cluster.nodes:
            self.wait_until_over(name)

    def tell(self):
        """For people: what the cluster says of it."""
        shown = [self.kubectl.attempt("get", "nodes,nodefences,pods", "--all-namespaces", "-o", "wide").stdout]
        for fence in self.kubectl.items("nodefences"):
            shown.append(json.dumps({"name": fence["metadata"]["name"], "spec": fence.get("spec"),
                                     "status": fence.get("status")}, indent=1))
        shown += [f"{pod['metadata']['name']}:\n" + self.kubectl.attempt(
            "logs", pod["metadata"]["name"], f"--namespace={deploy.NAMESPACE}", "--container=lunkeeper", "--tail=25", seconds=20).stdout
            for pod in deploy.pods(self.cluster, "controller")]
        return "\n".join(shown)


def moments(fence):
    """[(when, event, text)] of a NodeFence's timeline."""
    return [(seconds_of(moment["at"]), moment["event"], moment["text"]) for moment in fence["status"].get("timeline", [])]


def first_new_write(writer, before):
    """The time when more than `before` writes are acknowledged."""
    deadline = time.time() + REPLACEMENT_SECONDS
    seen = b""
    while time.time() < deadline:
        now, data = time.time(), writer.record.read_bytes()
        if data != seen and writer.acknowledged() > before:
            return now
        seen = data
        time.sleep(0.002)
    raise TimeoutError(f"nothing was written for {REPLACEMENT_SECONDS} s\n{writer.said()}")


def place(failover, workloads, name="db", node=None, block=True, **spec):
    """Makes a writer with a volume of its own and waits until it writes. `node`: where it runs first."""
    claim = {"size": "64Mi", "volumeMode": "Block"} if block else None
    with workloads.new_pods_go_to(node) if node else contextlib.nullcontext():
        writer = Writer(workloads, name, claim, block=block, owner="StatefulSet", **spec).goes_on()
    return Placed(failover, workloads, writer)


class Placed:
    """A StatefulSet's writer that runs on a node of the test's choice first, and anywhere later."""

    def __init__(self, failover, workloads, writer):
        self.failover, self.workloads, self.writer = failover, workloads, writer
        self.node = workloads.wait_for_pod(writer.pod)["spec"]["nodeName"]

    @property
    def host(self):
        return self.failover.host(self.node)

    def pod(self):
        return self.workloads.kubectl.find("pod", self.writer.pod, *self.workloads.here)

    def moves(self, seconds=MOVES_SECONDS):
        """Until its replacement writes on another node; that node."""
        def moved():
            pod = self.pod()
            where = pod and pod["spec"].get("nodeName")
            running = pod and pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
            return where if running and where != self.node else None
        there = wait_until(moved, seconds, lambda: f"{self.writer.pod} runs elsewhere\n{self.failover.tell()}\n"
                           f"{self.workloads.kubectl.why(self.writer.pod, *self.workloads.here)}", pause=0.1)
        self.writer.goes_on(seconds=seconds)
        return there

    def stays(self, uid):
        """Whether the same pod is still the one."""
        pod = self.pod()
        return pod is not None and pod["metadata"]["uid"] == uid and "deletionTimestamp" not in pod["metadata"]

    def uid(self):
        return self.pod()["metadata"]["uid"]

    def now_a_zombie(self):
        """Of a writer whose node is cut off or frozen at this moment, before another takes its place: what to call later, when it
        may have gone on for long. That fails if more was acknowledged to it than what was under way now."""
        record = open(self.writer.record, "rb")  # the one of this life, which later ones do not use

        def acknowledged():
            return self.writer.count(os.pread(record.fileno(), 1 << 20, 0))
        before = acknowledged()

        def wrote_nothing():
            with record:
                late = acknowledged() - before
            assert late <= self.writer.THREADS, f"{late} writes of the fenced node were acknowledged"
        return wrote_nothing

    def lost_nothing(self):
        """Every acknowledged write of all its lives is there, and the present life has seen neither an error nor bad data."""
        self.writer.verify(self.writer.pod)
        # Else it would be kicked on a node that had an outage (a container that ends crash-loops), and what it said would go with it.
        self.workloads.opt_out(self.writer.pod)
        self.writer.stop()
