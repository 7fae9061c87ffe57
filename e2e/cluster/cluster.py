"""The whole cluster: a network, a control plane, three nodes and a storage host; and two machines more that are off.

    cluster = Cluster()      # of this clone; any process may make one and ask or use what runs
    cluster.up(); cluster.kubectl("get", "nodes"); cluster.down()

All that it starts carries its mark, and all that it makes its prefix: `down` ends what `up` began, however far that came.
"""

import fcntl
import hashlib
import json
import shutil

from cluster import cgroups, images, loops, network, node, programs
from cluster.control_plane import ControlPlane
from cluster.kubectl import Kubectl, condition
from cluster.node import Node
from cluster.storage import StorageHost
from harness import places
from harness.cleanup import wait_until
from harness.pool import run
from harness.processes import kill_pid, marked_with

NODES = {"node-1": 11, "node-2": 12, "node-3": 13}
SPARES = {"node-4": 14, "node-5": 15}  # for tests that need more, or another machine: `join`
READY_SECONDS = 120
LUNKEEPER_IMAGE = "ghcr.io/lunkeeper/lunkeeper:0.1.0"  # as the chart names it
SIDECARS = {"csi-provisioner": "external-provisioner/v6", "csi-resizer": "external-resizer/v2",
            "csi-snapshotter": "external-snapshotter/v8"}
BUSYBOX_IMAGE = "lunkeeper.test/busybox:1"


class Cluster:
    def __init__(self, name="default"):
        self.name = name
        self.folder = places.ROOT / "build/cluster" / name
        identity = hashlib.sha256(str(self.folder).encode()).hexdigest()[:6]
        self.mark, self.prefix = f"cluster-{identity}", f"lk{identity}"
        self.control = ControlPlane(self.prefix, self.mark, self.folder)
        self.binary = self.folder / "lunkeeper"  # a build beside a running cluster must not disturb it
        self.storage = StorageHost(self.prefix, self.mark, self.folder, self.binary)
        self.nodes = {name: Node(self.prefix, self.mark, name, number, self.folder, self.control)
                      for name, number in NODES.items()}
        self.spares = {name: Node(self.prefix, self.mark, name, number, self.folder, self.control)
                       for name, number in SPARES.items()}
        self.kubectl = Kubectl(self.control, self.control.kubeconfig)

    def hosts(self):
        return {host.name: host for host in (self.control, self.storage, *self.nodes.values(), *self.spares.values())}

    def up(self):
        self.down()
        self.folder.mkdir(parents=True, exist_ok=True)
        run("strip", "--strip-debug", "-o", self.binary, places.LUNKEEPER)
        network.make(self.prefix, {name: host.number for name, host in self.hosts().items()})
        self.control.prepare([*self.nodes, *self.spares])
        self.control.boot()
        self.storage.prepare()
        self.storage.boot()
        tars = self.images()
        for each in self.nodes.values():
            each.prepare()
            each.boot(tars)
        self.wait_until_ready()

    def join(self, machine, known_as=None):
        """Boots a spare machine, new and empty, as one node more or under another's name, and waits until that node is ready."""
        spare = self.spares[machine]
        shutil.rmtree(spare.folder, ignore_errors=True)
        spare.known_as = known_as or machine
        spare.prepare()
        spare.boot(self.images())
        if spare.known_as == machine:
            self.nodes[machine] = spare
        wait_until(lambda: spare.known_as in self.ready_nodes(), READY_SECONDS, lambda: f"{machine} has joined\n{self.tell()}", pause=0.2)

    def leave(self, machine):
        """Without a word, as a machine that is scrapped: its Node object goes, and what Kubernetes thinks to run there."""
        spare = self.spares[machine]
        spare.power_off()
        self.nodes.pop(machine, None)
        self.kubectl("delete", "node", spare.known_as, "--ignore-not-found")
        self.kubectl("delete", "pods", "--all-namespaces", f"--field-selector=spec.nodeName={spare.known_as}", "--force",
                     "--grace-period=0")

    def images(self):
        """The tars of every image that pods of this cluster name."""
        folder = self.folder.parent / "images"
        versions = programs.versions()
        sidecars = [images.sidecar(f"registry.k8s.io/sig-storage/{name}:{versions[f'github.com/kubernetes-csi/{module}']}",
                                   programs.path(name)).write(folder / f"{name}.tar") for name, module in SIDECARS.items()]
        return [images.lunkeeper(LUNKEEPER_IMAGE, self.binary).write(self.folder / "lunkeeper.tar"), *sidecars,
                images.pause(node.SANDBOX_IMAGE).write(folder / "pause.tar"),
                images.writer(BUSYBOX_IMAGE).write(folder / "busybox.tar")]

    def wait_until_ready(self):
        wait_until(lambda: self.ready_nodes() == set(self.nodes), READY_SECONDS,
                   lambda: f"three nodes are ready\n{self.tell()}", pause=0.2)

    def ready_nodes(self):
        listed = self.kubectl.attempt("get", "nodes", "-o", "json")
        if listed.returncode != 0:
            return set()
        return {each["metadata"]["name"] for each in json.loads(listed.stdout)["items"] if condition(each, "Ready")}

    def down(self):
        """Ends every process of it by pid, then takes its network and its folder away."""
        held = set().union(*(loops.published_at(host.pid()) for host in self.hosts().values() if host.pid()))
        for pid in sorted(marked_with(self.mark)):
            kill_pid(pid)
        loops.release(held)
        network.remove(self.prefix)
        cgroups.remove(self.prefix)
        shutil.rmtree(self.folder, ignore_errors=True)

    def tell(self):
        """What runs, for people."""
        if self.control.pid() is None:
            return "the cluster is down"
        lines = []
        for name, host in self.hosts().items():
            services = host.services()
            if name in self.spares and not services:
                continue
            shown = ", ".join(f"{service} {pid}" for service, pid in services.items()) or "off"
            lines.append(f"{name:<10} {host.address:<12} {shown}")
        nodes = self.kubectl.attempt("get", "nodes,pods", "--all-namespaces", "-o", "wide")
        return "\n".join([*lines, "", nodes.stdout or nodes.stderr])

    def locked(self):
        """For `up` and `down`: one at a time."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        lock = open(self.folder.parent / f"{self.name}.lock", "w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock
