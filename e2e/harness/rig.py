"""A whole Lunkeeper on this machine: one array, and one node or more, as processes of their own.

    with Rig(folder, pool) as rig:                 # one server in `all` mode
    with Rig(folder, pool, nodes=2, split=True)    # the controller's server and two nodes' servers

Every node has a data path and a state folder of its own. Closing a rig removes all of it. Processes that
outlive their parent (tgtd) carry the rig's mark and are ended by pid.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import secrets
import shutil
import socket
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import grpc

from harness import places, store
from harness.cleanup import Cleanup, Closing, wait_until
from harness.csi import Client
from harness.leaks import remove_devices
from harness.processes import (
    MARK,
    Daemon,
    children_of,
    command_of,
    free_ports,
    kill_pid,
    listener_of,
    marked_with,
)

if TYPE_CHECKING:
    from harness.volume import Volume

START_SECONDS = 30
CLUSTER = "test"
TGT_SOCKETS = pathlib.Path("/var/run/tgtd")
# A request of tgtd's protocol (devices/array/tgt/tgt_client.cc). A connection that ends without a request may
# make tgtd spin for ever.
LIST_PORTALS = struct.pack("=II64sIiQQ6I", 3, 2, b"iscsi", 120, *[0] * 9)


def free_control_port(count: int = 1) -> int:
    """A tgtd control port nobody has, or the first of several; high, since people use the low ones."""
    while True:
        port = 1000 + secrets.randbelow(30000)
        if not any((TGT_SOCKETS / f"socket.{port + number}").exists() for number in range(count)):
            return port


class ReadyDaemon(Daemon):
    """A daemon that can say whether it is ready."""

    def ready(self) -> bool:
        raise NotImplementedError


class Server(ReadyDaemon):
    """One `lunkeeper serve`."""

    def __init__(self, rig: Rig, name: str, mode: str, options: Iterable[object]) -> None:
        self.socket = rig.folder / f"{name}.sock"
        super().__init__(
            name,
            [rig.binary, "serve", f"--mode={mode}", f"--endpoint=unix://{self.socket}", *options],
            log=rig.folder / f"{name}.log",
            environment=rig.environment,
        )
        self._client: Client | None = None

    def start(self, **environment: str) -> Self:
        super().start(**environment)
        if self._client is not None:
            self._client.close()
        self._client = Client(self.socket)
        return self

    @property
    def client(self) -> Client:
        assert self._client is not None, f"{self.name} was never started"
        return self._client

    def ready(self) -> bool:
        # The call waits for its connection: gRPC polls sockets only while a call runs, and one that is
        # refused at once leaves the connection where it is until its attempt times out.
        with contextlib.suppress(grpc.RpcError):
            return bool(self.client.Probe(seconds=2, wait=True).ready.value)
        return False


class Datapath(ReadyDaemon):
    """One `lunkeeper datapath`: the supervisor, which has one worker."""

    def __init__(self, rig: Rig, name: str, options: Iterable[object] = ()) -> None:
        self.socket = rig.folder / f"{name}-datapath.sock"
        super().__init__(
            f"{name}-datapath",
            [rig.binary, "datapath", f"--socket={self.socket}", *options],
            log=rig.folder / f"{name}-datapath.log",
            environment=rig.environment,
        )

    def ready(self) -> bool:
        return listener_of(self.socket, socket.SOCK_SEQPACKET) == self.pid and self.worker() is not None

    def worker(self) -> int | None:
        """The worker's pid; None while there is none."""
        children = children_of(self.pid) if self.running() else []
        return next((pid for pid in children if "--worker-socket" in command_of(pid)), None)


class Node:
    """A node's data path and, if it has one of its own, its server."""

    def __init__(
        self, rig: Rig, name: str, options: Iterable[str] = (), datapath_options: Iterable[str] = ()
    ) -> None:
        self.rig, self.name, self.more_options = rig, name, options
        self.state = rig.folder / f"{name}-state"
        self.datapath = Datapath(rig, name, datapath_options)
        self.server: Server  # the rig sets it

    def options(self) -> list[str]:
        return [
            f"--node-name={self.name}",
            f"--state-dir={self.state}",
            f"--datapath-socket={self.datapath.socket}",
            *self.more_options,
        ]

    def keeps_duplicates(self) -> bool:
        """Whether a plugin keeps duplicates of the data path's descriptors, for the next supervisor."""
        with contextlib.suppress(FileNotFoundError), open(f"{self.datapath.socket}.kept", "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @property
    def client(self) -> Client:
        return self.server.client

    @property
    def id(self) -> str:
        return str(self.client.NodeGetInfo().node_id)


class Rig(Closing):
    agents: Sequence[ReadyDaemon] = ()  # of arrays that are not the controller's own (agent/agents.py)

    def __init__(
        self,
        folder: Path,
        pool: Path,
        *,
        nodes: int = 1,
        split: bool = False,
        binary: Path | None = None,
        environment: Mapping[str, str] | None = None,
        array_options: Iterable[str] = (),
        node_options: Iterable[str] = (),
        datapath_options: Iterable[str] = (),
        tgtds: int = 1,
        start: bool = True,
    ) -> None:
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.binary = binary or places.LUNKEEPER
        self.mark = secrets.token_hex(8)
        self.environment = {**(environment or {}), MARK: self.mark}
        self.tgtds = tgtds
        self.control_port = free_control_port(tgtds)
        self.portal = f"127.0.0.1:{free_ports(tgtds)}"
        self.fences: dict[str, int] = {}  # by the node's id: the generation it was fenced with last
        self.cleanup = Cleanup()
        self.cleanup.add(lambda: shutil.rmtree(self.pool, ignore_errors=True))
        self.cleanup.add(self._end_processes)
        # Part of every volume's id, so that leaks are known to be of this rig.
        self.array_name = f"t{self.mark[:6]}"
        self.pool = pathlib.Path(pool) / self.array_name  # a file system may hold several rigs' pools
        self.pool.mkdir()
        self.nodes = [
            Node(self, f"node-{letter}", node_options, datapath_options) for letter in "abcdefgh"[:nodes]
        ]
        self._make_servers(split, array_options)
        if start:
            try:
                self.start()
            except BaseException:
                self.close()
                raise

    def _make_servers(self, split: bool, array_options: Iterable[str]) -> None:
        array = [
            f"--cluster={CLUSTER}",
            f"--array-name={self.array_name}",
            f"--pool={self.pool}",
            f"--portal={self.portal}",
            f"--tgt-control-port={self.control_port}",
            *([f"--tgtds={self.tgtds}"] if self.tgtds > 1 else []),  # an older binary has no such option
            *store.options(),
            *array_options,
        ]
        if split:
            self.controller = self.make_controller(array)
            for node in self.nodes:
                node.server = Server(self, node.name, "node", [*node.options(), *self.reached()])
        else:
            (node,) = self.nodes  # in `all` mode there is one
            self.controller = node.server = Server(self, "all", "all", [*array, *node.options()])

    def make_controller(self, array: list[str]) -> Server:
        """The controller's server, with the options of an array of its own."""
        return Server(
            self, "controller", "controller", [*array, f"--state-dir={self.folder}/controller-state"]
        )

    def reached(self) -> list[str]:
        """A node's options: the arrays it reaches."""
        return [f"--array-name={self.array_name}"]

    def servers(self) -> list[ReadyDaemon]:
        return list(dict.fromkeys([*self.agents, self.controller, *(node.server for node in self.nodes)]))

    def daemons(self) -> list[ReadyDaemon]:
        return [*(node.datapath for node in self.nodes), *self.servers()]

    def start(self, **environment: str) -> None:
        """Starts the processes that do not run, and waits until all are ready.

        None of them may end by itself.
        """
        for daemon in self.daemons():
            if not daemon.running():
                daemon.start(**environment)

        def ready() -> bool:
            for daemon in self.daemons():
                if not daemon.running():
                    raise RuntimeError(f"{daemon.name} ended\n{daemon.tail()}")
            return all(daemon.ready() for daemon in self.daemons())

        wait_until(ready, START_SECONDS, lambda: f"everything is ready\n{self.logs()}")

    def tgt_socket(self, number: int) -> Path:
        return TGT_SOCKETS / f"socket.{self.control_port + number}"

    def tgtd(self, number: int = 0) -> int | None:
        """The pid of the array's tgtd, or of a further one; None while it is down."""
        return listener_of(self.tgt_socket(number), question=LIST_PORTALS)

    def medium_of(self, volume: Volume) -> Path:
        """The file in which the array keeps a volume."""
        (path,) = [
            path for path in self.pool.rglob("*") if path.is_file() and volume.id.split(":")[-1] in path.name
        ]
        return path

    def read_medium(self, volume: Volume) -> bytes:
        """What is written of it, also by a session that was not told so yet."""
        return store.read_image(volume.id) if store.ON_CEPH else self.medium_of(volume).read_bytes()

    def portal_open(self) -> bool:
        host, port = self.portal.split(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 2):
            return True
        return False

    def fence(self, node_id: str, volumes: Iterable[str] = ()) -> None:
        def fence() -> None:
            self.fences[node_id] = self.controller.client.Fence(
                node=node_id, volumes=volumes
            ).fence.generation

        self._in_term(fence)

    def unfence(self, node_id: str) -> None:
        """OK when it is not fenced."""
        if node_id in self.fences:
            self._in_term(
                lambda: self.controller.client.Unfence(node=node_id, generation=self.fences[node_id])
            )

    @staticmethod
    def _in_term(call: Callable[[], object]) -> None:
        """Repeats a call while another caller has begun a newer term in between."""

        def done() -> bool:
            try:
                call()
                return True
            except grpc.RpcError as error:
                if "begin a new term" not in error.details():
                    raise
                return False

        wait_until(done, START_SECONDS, "no other call takes the term")

    def processes(self) -> dict[int, str]:
        return marked_with(self.mark)

    def logs(self) -> str:
        return "\n".join(daemon.tail() for daemon in self.daemons())

    def _end_processes(self) -> None:
        for server in self.servers():
            server.kill()
        for pid in self.processes():
            kill_pid(pid)
        for daemon in [node.datapath for node in self.nodes]:
            daemon.kill()
        remove_devices(self)
        for number in range(self.tgtds):
            for suffix in ("", ".lock"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.tgt_socket(number)}{suffix}")

    def close(self) -> None:
        self.cleanup.run()
