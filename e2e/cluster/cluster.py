"""The whole cluster: a network, a control plane, three nodes, a storage host, and two spare machines.

    cluster = Cluster()      # of this clone; any process may make one and ask or use what runs
    cluster.up(); cluster.kubectl("get", "nodes"); cluster.down()

Its processes carry its mark, and its namespaces and groups have its prefix. By these `down` finds what `up`
made, also when `up` did not come to its end.
"""

import fcntl
import hashlib
import json
import shutil
from pathlib import Path
from typing import TextIO

from cluster import cgroups, images, loops, network, node, programs, sidecars
from cluster.control_plane import ControlPlane
from cluster.host import Host
from cluster.kubectl import Kubectl, condition
from cluster.machine_end import kill_host
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
BUSYBOX_IMAGE = "lunkeeper.test/busybox:1"
# One of another Kubernetes is another cluster: tests of this one must not find it.
USUAL_NAME = "default" if programs.CHOSEN == programs.NEWEST else f"kubernetes-{programs.CHOSEN}"


class Cluster:
    def __init__(self, name: str = USUAL_NAME) -> None:
        self.name = name
        self.folder = places.ROOT / "build/cluster" / name
        identity = hashlib.sha256(str(self.folder).encode()).hexdigest()[:6]
        self.mark, self.prefix = f"cluster-{identity}", f"lk{identity}"
        self.control = ControlPlane(self.prefix, self.mark, self.folder)
        self.binary = self.folder / "lunkeeper"  # a build beside a running cluster must not disturb it
        self.storage = StorageHost(self.prefix, self.mark, self.folder, self.binary)
        self.nodes = {
            name: Node(self.prefix, self.mark, name, number, self.folder, self.control)
            for name, number in NODES.items()
        }
        self.spares = {
            name: Node(self.prefix, self.mark, name, number, self.folder, self.control)
            for name, number in SPARES.items()
        }
        self.kubectl = Kubectl(self.control, self.control.kubeconfig)

    def storage_hosts(self) -> list[StorageHost]:
        return [self.storage]

    def hosts(self) -> dict[str, Host]:
        others = (*self.nodes.values(), *self.spares.values())
        return {host.name: host for host in (self.control, *self.storage_hosts(), *others)}

    def up(self) -> None:
        self.down()
        self.folder.mkdir(parents=True, exist_ok=True)
        run("strip", "--strip-debug", "-o", self.binary, places.LUNKEEPER)
        network.make(self.prefix, {name: host.number for name, host in self.hosts().items()})
        self.control.prepare([*self.nodes, *self.spares])
        self.control.boot()
        self.boot_storage()
        tars = self.images()
        for each in self.nodes.values():
            each.prepare()
            each.boot(tars)
        self.wait_until_ready()

    def boot_storage(self) -> None:
        self.storage.prepare()
        self.storage.boot()

    def join(self, machine: str, known_as: str | None = None) -> None:
        """Boots a spare machine, empty, as a new node or as another node, and waits until it is ready."""
        spare = self.spares[machine]
        shutil.rmtree(spare.folder, ignore_errors=True)
        spare.known_as = known_as or machine
        spare.prepare()
        spare.boot(self.images())
        if spare.known_as == machine:
            self.nodes[machine] = spare
        wait_until(
            lambda: spare.known_as in self.ready_nodes(),
            READY_SECONDS,
            lambda: f"{machine} has joined\n{self.tell()}",
            pause=0.2,
        )

    def leave(self, machine: str) -> None:
        """Powers a machine off for good, as a scrapped one: its Node object and its pods' objects are
        deleted.
        """
        spare = self.spares[machine]
        spare.power_off()
        self.nodes.pop(machine, None)
        self.kubectl("delete", "node", spare.known_as, "--ignore-not-found")
        self.kubectl(
            "delete",
            "pods",
            "--all-namespaces",
            f"--field-selector=spec.nodeName={spare.known_as}",
            "--force",
            "--grace-period=0",
        )

    def images(self) -> list[Path]:
        """The tars of every image that pods of this cluster name."""
        folder = self.folder.parent / "images"
        built = [
            images.sidecar(sidecars.names(name), programs.path(name)).write(folder / f"{name}.tar")
            for name in sidecars.MODULES
        ]
        return [
            images.lunkeeper(LUNKEEPER_IMAGE, self.binary).write(self.folder / "lunkeeper.tar"),
            *built,
            images.pause(node.SANDBOX_IMAGE).write(folder / "pause.tar"),
            images.writer(BUSYBOX_IMAGE).write(folder / "busybox.tar"),
        ]

    def wait_until_ready(self) -> None:
        wait_until(
            lambda: self.ready_nodes() == set(self.nodes),
            READY_SECONDS,
            lambda: f"three nodes are ready\n{self.tell()}",
            pause=0.2,
        )

    def ready_nodes(self) -> set[str]:
        listed = self.kubectl.attempt("get", "nodes", "-o", "json")
        if listed.returncode != 0:
            return set()
        return {
            each["metadata"]["name"]
            for each in json.loads(listed.stdout)["items"]
            if condition(each, "Ready")
        }

    def down(self) -> None:
        """Ends every process of it by pid, then takes its network and its folder away."""
        pids = [pid for host in self.hosts().values() if (pid := host.pid()) is not None]
        held = {number for pid in pids for number in loops.published_at(pid)}
        for pid in pids:
            kill_host(pid)
        for pid in sorted(marked_with(self.mark)):
            kill_pid(pid)
        loops.release(held)
        network.remove(self.prefix)
        cgroups.remove(self.prefix)
        shutil.rmtree(self.folder, ignore_errors=True)

    def tell(self) -> str:
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

    def locked(self) -> TextIO:
        """For `up` and `down`: one at a time."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        lock = open(self.folder.parent / f"{self.name}.lock", "w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock
