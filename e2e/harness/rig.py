"""A whole Lunkeeper on this machine: one array, and one node or more, as processes of their own.

    with Rig(folder, pool) as rig:                 # one server in `all` mode
    with Rig(folder, pool, nodes=2, split=True)    # the controller's server and two nodes' servers

Every node has a data path and a state folder of its own. Nothing of a rig is left when it is closed: what its processes
started and left behind (tgtd) carries the rig's mark and is ended by pid.
"""

import contextlib
import os
import pathlib
import secrets
import shutil
import socket
import struct

import grpc

from harness import places
from harness.cleanup import Cleanup, wait_until
from harness.csi import Client
from harness.leaks import take_away_devices
from harness.processes import MARK, Daemon, children_of, command_of, free_port, kill_pid, listener_of, marked_with

START_SECONDS = 30
CLUSTER = "test"
TGT_SOCKETS = pathlib.Path("/var/run/tgtd")
# In tgtd's own words (devices/array/tgt/tgt_client.cc): a connection that ends without a request may keep it turning for ever.
LIST_PORTALS = struct.pack("=II64sIiQQ6I", 3, 2, b"iscsi", 120, *[0] * 9)


def free_control_port():
    """A tgtd control port nobody has; high, since people use the low ones."""
    while True:
        port = 1000 + secrets.randbelow(30000)
        if not (TGT_SOCKETS / f"socket.{port}").exists():
            return port


class Server(Daemon):
    """One `lunkeeper serve`."""

    def __init__(self, rig, name, mode, options):
        self.socket = rig.folder / f"{name}.sock"
        super().__init__(name, [rig.binary, "serve", f"--mode={mode}", f"--endpoint=unix://{self.socket}", *options],
                         log=rig.folder / f"{name}.log", environment=rig.environment)
        self.client = None

    def start(self, **environment):
        super().start(**environment)
        if self.client is not None:
            self.client.close()
        self.client = Client(self.socket)
        return self

    def ready(self):
        with contextlib.suppress(grpc.RpcError):
            return self.client.Probe(seconds=2).ready.value
        return False


class Datapath(Daemon):
    """One `lunkeeper datapath`: the supervisor, which has one worker."""

    def __init__(self, rig, name, options=()):
        self.socket = rig.folder / f"{name}-datapath.sock"
        super().__init__(f"{name}-datapath", [rig.binary, "datapath", f"--socket={self.socket}", *options],
                         log=rig.folder / f"{name}-datapath.log", environment=rig.environment)

    def ready(self):
        return listener_of(self.socket, socket.SOCK_SEQPACKET) == self.pid and self.worker() is not None

    def worker(self):
        """The worker's pid; None while there is none."""
        children = children_of(self.pid) if self.running() else []
        return next((pid for pid in children if "--worker-socket" in command_of(pid)), None)


class Node:
    """A node's data path and, if it has one of its own, its server."""

    def __init__(self, rig, name, options=(), datapath_options=()):
        self.rig, self.name, self.more_options = rig, name, options
        self.state = rig.folder / f"{name}-state"
        self.datapath = Datapath(rig, name, datapath_options)
        self.server = None

    def options(self):
        return [f"--node-name={self.name}", f"--state-dir={self.state}", f"--datapath-socket={self.datapath.socket}",
                *self.more_options]

    @property
    def client(self):
        return self.server.client

    @property
    def id(self):
        return self.client.NodeGetInfo().node_id


class Rig:
    agents = ()  # of arrays that are not the controller's own (agent/agents.py)

    def __init__(self, folder, pool, *, nodes=1, split=False, binary=None, environment=None, array_options=(),
                 node_options=(), datapath_options=(), start=True):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.binary = binary or places.LUNKEEPER
        self.mark = secrets.token_hex(8)
        self.environment = {**(environment or {}), MARK: self.mark}
        self.control_port = free_control_port()
        self.portal = f"127.0.0.1:{free_port()}"
        self.fences = {}  # by the node's id: the generation it was fenced with last
        self.cleanup = Cleanup()
        self.cleanup.add(lambda: shutil.rmtree(self.pool, ignore_errors=True))
        self.cleanup.add(self._end_processes)
        self.array_name = f"t{self.mark[:6]}"  # part of every volume's id, so that what is left of it is known as ours
        self.pool = pathlib.Path(pool) / self.array_name  # a file system may hold several rigs' pools
        self.pool.mkdir()
        self.nodes = [Node(self, f"node-{letter}", node_options, datapath_options) for letter in "abcdefgh"[:nodes]]
        array = [f"--cluster={CLUSTER}", f"--array-name={self.array_name}", f"--pool={self.pool}", f"--portal={self.portal}",
                 f"--tgt-control-port={self.control_port}", *array_options]
        if split:
            self.controller = self.make_controller(array)
            for node in self.nodes:
                node.server = Server(self, node.name, "node", [*node.options(), *self.reached()])
        else:
            assert nodes == 1, "in `all` mode there is one node"
            self.controller = self.nodes[0].server = Server(self, "all", "all", [*array, *self.nodes[0].options()])
        if start:
            try:
                self.start()
            except BaseException:
                self.close()
                raise

    def make_controller(self, array):
        """The controller's server, with the options of an array of its own."""
        return Server(self, "controller", "controller", [*array, f"--state-dir={self.folder}/controller-state"])

    def reached(self):
        """A node's options: the arrays it reaches."""
        return [f"--array-name={self.array_name}"]

    def servers(self):
        return list(dict.fromkeys([*self.agents, self.controller, *(node.server for node in self.nodes)]))

    def daemons(self):
        return [*(node.datapath for node in self.nodes), *self.servers()]

    def start(self, **environment):
        """Starts what does not run, and waits for all of it. Nothing may end by itself."""
        for daemon in self.daemons():
            if not daemon.running():
                daemon.start(**environment)

        def ready():
            for daemon in self.daemons():
                if not daemon.running():
                    raise RuntimeError(f"{daemon.name} ended\n{daemon.tail()}")
            return all(daemon.ready() for daemon in self.daemons())
        wait_until(ready, START_SECONDS, lambda: f"everything is ready\n{self.logs()}")

    @property
    def tgt_socket(self):
        return TGT_SOCKETS / f"socket.{self.control_port}"

    def tgtd(self):
        """The pid of the array's tgtd; None while it is down."""
        return listener_of(self.tgt_socket, question=LIST_PORTALS)

    def medium_of(self, volume):
        """The file in which the array keeps a volume."""
        path, = [path for path in self.pool.rglob("*") if path.is_file() and volume.id.split(":")[-1] in path.name]
        return path

    def portal_open(self):
        with contextlib.suppress(OSError), socket.create_connection(self.portal.split(":"), 2):
            return True
        return False

    def fence(self, node_id, volumes=()):
        def fence():
            self.fences[node_id] = self.controller.client.Fence(node=node_id, volumes=volumes).fence.generation
        self._in_term(fence)

    def unfence(self, node_id):
        """OK when it is not fenced."""
        if node_id in self.fences:
            self._in_term(lambda: self.controller.client.Unfence(node=node_id, generation=self.fences[node_id]))

    @staticmethod
    def _in_term(call):
        """Again while somebody else's call has begun a newer term in between."""
        def done():
            try:
                call()
                return True
            except grpc.RpcError as error:
                if "begin a new term" not in error.details():
                    raise
                return False
        wait_until(done, START_SECONDS, "no other call takes the term")

    def processes(self):
        return marked_with(self.mark)

    def logs(self):
        return "\n".join(daemon.tail() for daemon in self.daemons())

    def _end_processes(self):
        for server in self.servers():
            server.kill()
        for pid in self.processes():
            kill_pid(pid)
        for daemon in [node.datapath for node in self.nodes]:
            daemon.kill()
        take_away_devices(self)
        for suffix in ("", ".lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self.tgt_socket}{suffix}")

    def close(self):
        self.cleanup.run()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()
