"""A failover seen from outside: NodeFences, taints, the nodes of pods, leftovers on nodes."""

import contextlib
import json
import os
import time

from cluster import deploy, faults, network
from cluster.kubectl import condition, seconds_of
from harness.cleanup import wait_until
from kube.writer import Writer

TAINT, PLUGIN_TAINT = "lunkeeper.io/fenced", "lunkeeper.io/plugin-not-ready"
# From the fault to the replacement's first write. More than promised, since this machine is shared.
MOVES_SECONDS = 30
# For rows of the evidence table without a probe: kubelet's lease has to expire first.
SLOW_SECONDS = 60
OVER_SECONDS = 90  # from a node's return until nothing of its fence is left
READY_SECONDS = 90
# Until a pod that runs has the new settings: kubelet looks at a ConfigMap once a minute or so.
SETTINGS_SECONDS = 150
REPLACEMENT_SECONDS = 60  # until a replacement must have written
COORDINATOR_PORT = 7443


class Failover:
    """The failovers of one cluster. `end` heals every node and waits until no trace of a failover remains."""

    def __init__(self, cluster):
        self.cluster, self.kubectl = cluster, cluster.kubectl

    def host(self, node):
        return self.cluster.nodes[node]

    def fences(self):
        """{node: its NodeFence}. A node may have had other machines before; the newest fence counts."""
        return {
            fence["status"].get("node", fence["metadata"]["name"].rpartition(".")[0]): fence
            for fence in self.kubectl.items("nodefences")
            if "status" in fence
        }

    def fence(self, node):
        return self.fences().get(node)

    def node_id(self, node):
        """The driver's node id on the node, which NodeFences are named after; None when it is not
        registered.
        """
        csi_node = self.kubectl.find("csinode", node) or {"spec": {}}
        return next(
            (
                each["nodeID"]
                for each in csi_node["spec"].get("drivers") or []
                if each["name"] == deploy.DRIVER
            ),
            None,
        )

    def taint(self, node, key=TAINT):
        """The value of the node's taint, which is the NodeFence's instance; None without a taint."""
        taints = self.kubectl.get("node", node)["spec"].get("taints", [])
        return next((each.get("value", "") for each in taints if each["key"] == key), None)

    def refusals(self, node):
        """The reasons why it is not failed over, from its events."""
        events = self.kubectl.items(
            "events",
            "--all-namespaces",
            f"--field-selector=involvedObject.name={node},reason=FailoverRefused",
        )
        return [event["message"] for event in events]

    def fenced_at_the_array(self):
        """The node ids that the array has fenced, from its catalogue."""
        return self._catalogue("SELECT node FROM fences")

    def wait_until_unfenced_at_the_array(self, node_id, seconds=OVER_SECONDS):
        wait_until(
            lambda: node_id not in self.fenced_at_the_array(),
            seconds,
            lambda: f"{node_id} is not fenced at the array\n{self.tell()}",
            pause=0.3,
        )

    def _catalogue(self, query):
        return [value for row in self.cluster.storage.query_catalogue(query) for value in row]

    def wait_until_fenced(self, node, seconds=MOVES_SECONDS):
        """Waits until every array has fenced the node and its taint is set; returns the NodeFence."""

        def fenced():
            fence = self.fence(node)
            arrays = fence["status"].get("arrays", {}) if fence else {}
            done = arrays and all("generation" in each for each in arrays.values())
            return fence if done and self.taint(node) is not None else None

        return wait_until(fenced, seconds, lambda: f"{node} is fenced\n{self.tell()}", pause=0.2)

    def wait_until_moved(self, node, seconds=MOVES_SECONDS):
        """Waits until every replacement runs; returns the NodeFence."""

        def moved():
            fence = self.fence(node)
            return fence if fence and fence["status"].get("phase") in ("Moved", "AwaitingNode") else None

        return wait_until(moved, seconds, lambda: f"{node}'s pods run elsewhere\n{self.tell()}", pause=0.2)

    def wait_until_over(self, node, seconds=OVER_SECONDS):
        """Waits until the node has no NodeFence and no taint of ours."""
        wait_until(
            lambda: not self.fence(node) and {self.taint(node), self.taint(node, PLUGIN_TAINT)} == {None},
            seconds,
            lambda: f"{node} is free again\n{self.tell()}",
            pause=0.3,
        )

    def stays_quiet(self, seconds, well=lambda: True):
        """Checks for that long that no node is fenced and that `well` holds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert not self.fences(), f"somebody is fenced\n{self.tell()}"
            assert well(), "what should go on does not"
            time.sleep(0.3)

    def wait_until_ready(self, node, seconds=READY_SECONDS):
        wait_until(
            lambda: condition(self.kubectl.find("node", node) or {}, "Ready"),
            seconds,
            lambda: f"{node} is ready\n{self.tell()}",
            pause=0.3,
        )

    def wait_until_plugins_are_ready(self, seconds=READY_SECONDS):
        def ready():
            pods = [
                pod
                for component in ("controller", "node", "datapath")
                for pod in deploy.pods(self.cluster, component)
            ]
            return pods and all(
                condition(pod, "Ready") and "deletionTimestamp" not in pod["metadata"] for pod in pods
            )

        wait_until(ready, seconds, lambda: f"the plugins are ready\n{self.tell()}", pause=0.5)

    def leader(self):
        """The node where the leading controller runs."""
        pods = {pod["metadata"]["name"]: pod for pod in deploy.pods(self.cluster, "controller")}

        def found():
            lease = self.kubectl.find("lease", "lunkeeper-failover", f"--namespace={deploy.NAMESPACE}")
            holder = (lease or {}).get("spec", {}).get("holderIdentity") or "nobody"
            return next(
                (pod["spec"]["nodeName"] for name, pod in pods.items() if holder.startswith(name)), None
            )

        return wait_until(found, 30, "a controller leads", pause=0.2)

    def with_controllers(self):
        """The nodes where controllers run, each on one of its own: earlier faults may have brought two
        together.
        """

        def apart():
            pods = deploy.pods(self.cluster, "controller")
            nodes = {pod["spec"].get("nodeName") for pod in pods}
            if len(nodes) == len(pods):
                return nodes
            here = f"--namespace={deploy.NAMESPACE}"
            self.kubectl("delete", "pod", pods[0]["metadata"]["name"], here, seconds=120)
            self.wait_until_plugins_are_ready()
            return None

        return wait_until(apart, READY_SECONDS, "the controllers run on different nodes", pause=1)

    def without_controller(self):
        controllers = self.with_controllers()
        return next(name for name in self.cluster.nodes if name not in controllers)

    def said(self, but_on=None):
        """What each controller says of itself and of the nodes, but for those on one node."""
        command = "--container=lunkeeper -- lunkeeper status --endpoint=unix:///admin/admin.sock".split()
        return [
            self.kubectl.attempt(
                "exec", f"--namespace={deploy.NAMESPACE}", pod["metadata"]["name"], *command
            ).stdout
            for pod in deploy.pods(self.cluster, "controller")
            if but_on is None or pod["spec"]["nodeName"] != but_on
        ]

    def wait_until_all_say(self, words, seconds=SETTINGS_SECONDS):
        """Waits until each controller says so, for instance that it goes by other settings."""

        def say():
            said = self.said()
            return said and all(words in each for each in said)

        wait_until(say, seconds, lambda: f"all say {words}; what they say is\n{self.said()}", pause=0.5)

    def classification(self, node):
        """How the controllers on other nodes classify a node, and why. Each has its own evidence."""
        lines = "\n".join(self.said(but_on=node)).split("\n")
        return "\n".join(line for line in lines if f"node {node}." in line)

    def wait_for_classification(self, node, words, seconds=SLOW_SECONDS):
        wait_until(
            lambda: words in self.classification(node),
            seconds,
            lambda: f"{words} is said of {node}; what is said is\n{self.classification(node)}\n{self.tell()}",
            pause=0.3,
        )

    @contextlib.contextmanager
    def joined(self, machine, known_as=None):
        """A spare machine as a node while the context lasts.

        In the end nothing of it remains, also at the array.
        """
        try:
            self.cluster.join(machine, known_as)
            name = known_as or machine
            node_id = wait_until(
                lambda: self.node_id(name), READY_SECONDS, f"the driver is registered on {name}", pause=0.3
            )
            self.wait_until_plugins_are_ready()
            yield node_id
            wait_until(
                lambda: node_id not in self._catalogue("SELECT node FROM grants"),
                OVER_SECONDS,
                f"{machine} has let go of its volumes",
                pause=0.3,
            )
        finally:
            self.cluster.leave(machine)

    def end(self):
        """Heals all faults, boots all machines, and waits until no trace of a failover remains."""
        for name, host in self.cluster.nodes.items():
            if host.pid() is None:
                host.boot()
            network.plug(host.cluster, name, True)
            faults.heal(host)
            faults.thaw(host)
        for name, host in self.cluster.nodes.items():
            if self.kubectl.find("node", name) is None and "kubelet" in host.services():
                faults.kill_service(host, "kubelet")  # it registers its node only when it starts
            self.wait_until_ready(name)
            self.kubectl("uncordon", name)
        for fence in self.kubectl.items("nodefences"):
            if fence.get("spec", {}).get("requestedBy") != "evidence":
                self.kubectl("delete", "nodefence", fence["metadata"]["name"], "--wait=false")
        self.wait_until_plugins_are_ready()
        for name in self.cluster.nodes:
            self.wait_until_over(name)

    def tell(self):
        """For people: the state of the cluster."""
        shown = [
            self.kubectl.attempt("get", "nodes,nodefences,pods", "--all-namespaces", "-o", "wide").stdout
        ]
        for fence in self.kubectl.items("nodefences"):
            shown.append(
                json.dumps(
                    {
                        "name": fence["metadata"]["name"],
                        "spec": fence.get("spec"),
                        "status": fence.get("status"),
                    },
                    indent=1,
                )
            )
        shown += [
            f"{pod['metadata']['name']}:\n"
            + self.kubectl.attempt(
                "logs",
                pod["metadata"]["name"],
                f"--namespace={deploy.NAMESPACE}",
                "--container=lunkeeper",
                "--tail=25",
                seconds=20,
            ).stdout
            for pod in deploy.pods(self.cluster, "controller")
        ]
        return "\n".join(shown)


def moments(fence):
    """[(when, event, text)] of a NodeFence's timeline."""
    return [
        (seconds_of(moment["at"]), moment["event"], moment["text"])
        for moment in fence["status"].get("timeline", [])
    ]


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


def place(failover, workloads, name="db", node=None, block=True, storage_class="lunkeeper", **spec):
    """Makes a writer with a volume of its own and waits until it writes. `node`: where it runs first."""
    claim = {"size": "64Mi", "volumeMode": "Block"} if block else {}
    claim["storage_class"] = storage_class
    with workloads.new_pods_go_to(node) if node else contextlib.nullcontext():
        writer = Writer(workloads, name, claim, block=block, owner="StatefulSet", **spec).goes_on()
    return Placed(failover, workloads, writer)


class Placed:
    """A StatefulSet's writer that first runs on a node that the test chooses, later anywhere."""

    def __init__(self, failover, workloads, writer):
        self.failover, self.workloads, self.writer = failover, workloads, writer
        self.node = workloads.wait_for_pod(writer.pod)["spec"]["nodeName"]

    @property
    def host(self):
        return self.failover.host(self.node)

    def pod(self):
        return self.workloads.kubectl.find("pod", self.writer.pod, *self.workloads.here)

    def moves(self, seconds=MOVES_SECONDS):
        """Waits until its replacement writes on another node; returns that node."""
        there = self.runs_elsewhere(seconds)
        self.writer.goes_on(seconds=seconds)
        return there

    def runs_elsewhere(self, seconds=MOVES_SECONDS):
        """Waits until it does; returns the other node."""

        def moved():
            pod = self.pod()
            where = pod and pod["spec"].get("nodeName")
            running = (
                pod and pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
            )
            return where if running and where != self.node else None

        return wait_until(
            moved,
            seconds,
            lambda: (
                f"{self.writer.pod} runs elsewhere\n{self.failover.tell()}\n"
                f"{self.workloads.kubectl.why(self.writer.pod, *self.workloads.here)}"
            ),
            pause=0.1,
        )

    def stays(self, uid):
        """Whether it is still the same pod."""
        pod = self.pod()
        return (
            pod is not None and pod["metadata"]["uid"] == uid and "deletionTimestamp" not in pod["metadata"]
        )

    def uid(self):
        return self.pod()["metadata"]["uid"]

    def now_a_zombie(self):
        """Call this when the writer's node has just been isolated or frozen. Returns a check for later.

        The check fails if more writes of the old writer were acknowledged than could be in flight now.
        """
        record = open(self.writer.record, "rb")  # the record of this pod; its successors use others

        def acknowledged():
            return self.writer.count(os.pread(record.fileno(), 1 << 20, 0))

        before = acknowledged()

        def wrote_nothing():
            with record:
                late = acknowledged() - before
            assert late <= self.writer.THREADS, f"{late} writes of the fenced node were acknowledged"

        return wrote_nothing

    def lost_nothing(self):
        """Every acknowledged write of all its pods is there, and the present pod has seen no error and no bad
        data.
        """
        self.writer.verify(self.writer.pod)
        # Else it would be deleted with its log, since a container that ends on a node after an outage counts
        # as one that crash-loops.
        self.workloads.opt_out(self.writer.pod)
        self.writer.stop()
