"""A hard life without a dead node: what happens to a cluster in `./dev bench calm`, and how often.

Each trouble ends by itself, also on Ctrl-C. Any of them may come together, but for what would be a dead node
to everybody who could look. So
- of the troubles of a node's network one at a time happens to a node. They share a firewall, too;
- a plugin is not stopped while its node's kernel answers no probe: no heartbeat and no kernel is what a dead
  node looks like, and a stop takes nearly as long as a node may be silent;
- of the troubles of the array one at a time happens, with time between them: a device that waits for longer
  than datapath.replacementSeconds fails for good, and its pod is then replaced as it should be;
- while nodes are cut off from the portal nothing else happens to their networks. Else one node alone might
  miss the moment when the array gets heartbeats again.
"""

import collections
import contextlib
import dataclasses
import random
import threading
import time
import traceback
from collections.abc import Callable

from cluster import deploy, faults, storage
from cluster.late_answers import late_answers
from harness.cleanup import wait_until

PLUGIN = ("lunkeeper", "serve", "--mode=node")
LONGEST_STOP, MOST_LOSS = 2.0, 20  # seconds, percent
STEADY_LOSS = 5
KUBELET_PORT = 10250  # where the controllers probe
CUT_SECONDS = 60  # of a firewall, a cut, and a slow API server
API_SECONDS = 3  # that each answer takes
OFF_SECONDS = (3, 20)
MOST_WRONG = 45  # seconds, of a clock
READY_SECONDS = 90
RARE_SECONDS = 20  # of pauses
RECOVERY_SECONDS = 20  # after a trouble of the array


@dataclasses.dataclass
class Trouble:
    what: str  # as it is counted
    pause: tuple[float, float]  # seconds before each
    cause: Callable[[], None]


class HardLife:
    """Causes troubles, each kind on a thread of its own, until it is left; counts and writes them down.

    `pace` divides the pauses between troubles that are rare. `before_restart(pod)` may save what a controller
    has said.
    """

    def __init__(self, cluster, clocks, diary, pace=1.0, before_restart=lambda pod: None):
        self.cluster, self.nodes, self.control = cluster, cluster.nodes, cluster.control
        self.clocks = clocks
        self.diary, self.pace, self.before_restart = diary, pace, before_restart
        self.over, self.counts = threading.Event(), collections.Counter()
        self.networks = {node: threading.Lock() for node in self.nodes}
        self.plugins = {node: threading.Lock() for node in self.nodes}
        self.array = threading.Lock()
        self.threads = [
            threading.Thread(target=self.repeat, args=(trouble,)) for trouble in self.troubles()
        ]

    def troubles(self):
        """The pauses are such that in an hour the portal is cut off at least five times."""
        return [
            Trouble("stops of a plugin", (1, 6), self.stop_plugin),
            Trouble("times of packet loss", (1, 10), self.lose_packets),
            Trouble("deaths of the API server", (60, 60), self.kill_api_server),
            Trouble("cuts of the portal from every node", (480, 600), self.cut_portal),
            Trouble("restarts of the agent", (60, 180), self.restart_agent),
            Trouble("deaths of the array's tgtds", (180, 420), self.kill_tgtds),
            Trouble("power-offs of the storage host", (420, 900), self.restart_storage_host),
            Trouble("times of packet loss at the array", (120, 300), self.lose_packets_of_array),
            Trouble("times of a kernel behind a firewall", (30, 120), self.block_probes),
            Trouble("times of a slow API server", (240, 420), self.slow_api),
            Trouble("restarts of a controller", (90, 240), self.restart_controller),
            Trouble("cuts between a controller and the array", (120, 300), self.cut_controller),
            Trouble("steps of a clock", (20, 60), self.step_clock),
        ]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *unused):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def repeat(self, trouble):
        """A trouble that could not be caused is counted apart, and does not end the others."""
        pace = self.pace if trouble.pause[0] >= RARE_SECONDS else 1
        while not self.over.wait(random.uniform(*trouble.pause) / pace):
            try:
                trouble.cause()
                self.counts[trouble.what] += 1
            except Exception:  # whatever it is, the life goes on
                self.counts[f"FAILED {trouble.what}"] += 1
                traceback.print_exc()

    def note(self, text):
        """In the diary, so that a finding has its circumstances."""
        with open(self.diary, "a") as diary:
            diary.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}\n")

    @contextlib.contextmanager
    def noted(self, text):
        self.note(f"{text} begins")
        try:
            yield
        finally:
            self.note(f"{text} ends")

    # Of a node.

    @contextlib.contextmanager
    def network(self, node, text):
        """One trouble of a node's network; at its end the network is healed."""
        with self.networks[node], self.noted(f"{node}: {text}"):
            try:
                yield self.nodes[node]
            finally:
                faults.heal(self.nodes[node])

    def stop_plugin(self):
        node = random.choice(list(self.nodes))
        with self.plugins[node], self.noted(f"{node}: stop of the plugin"):
            with faults.stopped(faults.find_processes(self.nodes[node], *PLUGIN)):
                time.sleep(random.uniform(0.2, LONGEST_STOP))

    def lose_packets(self):
        percent = random.randint(1, MOST_LOSS)
        with self.network(random.choice(list(self.nodes)), f"loss of {percent} %") as host:
            faults.lose_packets(host, percent)
            self.over.wait(random.uniform(5, 20))

    def block_probes(self):
        node = random.choice(list(self.nodes))
        with self.network(node, "firewall") as host, self.plugins[node]:
            faults.block(host, KUBELET_PORT)
            self.over.wait(CUT_SECONDS)

    # Of the array.

    @contextlib.contextmanager
    def array_trouble(self, text):
        with self.array:
            with self.noted(text):
                yield self.cluster.storage
            self.over.wait(RECOVERY_SECONDS)

    def cut_portal(self):
        """The network of the data is away for all, and the agent is reached."""
        with self.array_trouble("portal cut"), contextlib.ExitStack() as networks:
            hosts = [networks.enter_context(self.network(node, "portal cut")) for node in self.nodes]
            for host in hosts:
                faults.cut_off(host, ports=[storage.PORTAL_PORT])
            self.over.wait(CUT_SECONDS)

    def restart_agent(self):
        with self.array_trouble("restart of the agent") as host:
            faults.kill_service(host, "lunkeeper-array")

    def kill_tgtds(self):
        with self.array_trouble("death of the tgtds") as host:
            faults.kill_all(faults.find_processes(host, "tgtd"))
            wait_until(
                lambda: faults.find_processes(host, "tgtd"),
                READY_SECONDS,
                "the agent has started another tgtd",
                pause=0.2,
            )

    def restart_storage_host(self):
        with self.array_trouble("power-off of the storage host") as host:
            try:
                host.power_off()
                self.over.wait(random.uniform(*OFF_SECONDS))
            finally:
                host.boot()
                wait_until(host.serves, READY_SECONDS, "the array serves", pause=0.2)

    def lose_packets_of_array(self):
        with self.array_trouble(f"loss of {STEADY_LOSS} % at the array") as host:
            try:
                faults.lose_packets(host, STEADY_LOSS)
                self.over.wait(CUT_SECONDS)
            finally:
                faults.heal(host)

    # Of those who watch.

    def kill_api_server(self):
        with self.noted("death of the API server"):
            faults.kill_service(self.control, "kube-apiserver")

    def slow_api(self):
        with self.noted("slow API server"), late_answers(self.control, API_SECONDS):
            self.over.wait(CUT_SECONDS)

    def a_controller(self):
        """The pod of one of them. The API server may just be away."""

        def found():
            with contextlib.suppress(RuntimeError):
                return [
                    pod
                    for pod in deploy.pods(self.cluster, "controller")
                    if pod["status"].get("podIP") and "deletionTimestamp" not in pod["metadata"]
                ]

        return random.choice(wait_until(found, READY_SECONDS, "there is a controller", pause=1))

    def restart_controller(self):
        pod = self.a_controller()
        name = pod["metadata"]["name"]
        with self.noted(f"restart of {name} on {pod['spec']['nodeName']}"):
            self.before_restart(pod)
            gone = ("delete", "pod", name, f"--namespace={deploy.NAMESPACE}", "--wait=false")
            wait_until(
                lambda: self.cluster.kubectl.attempt(*gone).returncode == 0,
                READY_SECONDS,
                f"{name} is deleted",
                pause=1,
            )

    def cut_controller(self):
        """One on one node. The node itself reaches the array."""
        node = self.a_controller()["spec"]["nodeName"]
        with self.network(node, "controller cut from the array") as host:
            faults.cut_off(host, hosts=[self.cluster.storage], pods_only=True)
            self.over.wait(CUT_SECONDS)

    def step_clock(self):
        """Of the plugins of one node, and it stays wrong until the next step."""
        node, seconds = random.choice(list(self.nodes)), random.uniform(-MOST_WRONG, MOST_WRONG)
        self.note(f"{node}: its clock is {seconds:+.1f} s wrong")
        self.clocks.step(node, seconds)
