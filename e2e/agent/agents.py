"""Array agents, each with a tgtd of its own, and a rig whose controller uses them over mutual TLS."""

import contextlib
import json
import os
import urllib.request

import grpc

from cluster.authority import Authority
from harness.cleanup import wait_until
from harness.csi import Client, code_of
from harness.processes import free_port, listener_of
from harness.rig import (
    CLUSTER,
    LIST_PORTALS,
    START_SECONDS,
    TGT_SOCKETS,
    ReadyDaemon,
    Rig,
    Server,
    free_control_port,
)


def page(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.read().decode()


class Agent(ReadyDaemon):
    """One `lunkeeper array`."""

    def __init__(self, rig, name, pool, portal, control_port, *, host="", address=None, tgtds=1):
        """`host`: of several that serve one array by turns; `address`: where clients find the array."""
        self.array_name, self.control_port = name, control_port
        self.address, self.metrics_port = address or f"127.0.0.1:{free_port()}", free_port()
        called = f"agent-{name}{host}"
        self.socket = rig.folder / f"{called}.sock"
        certificate, key = rig.authority.issue(called, f"DNS:{name}.example")
        super().__init__(
            called,
            [
                rig.binary,
                "array",
                f"--name={name}",
                f"--pool={pool}",
                f"--portal={portal}",
                f"--tgt-control-port={control_port}",
                f"--listen={self.address}",
                f"--tls-cert={certificate}",
                f"--tls-key={key}",
                f"--tls-ca={rig.authority.certificate}",
                f"--endpoint=unix://{self.socket}",
                f"--state-dir={rig.folder}/{called}-state",
                f"--metrics-address=127.0.0.1:{self.metrics_port}",
                *([f"--tgtds={tgtds}"] if tgtds > 1 else []),
            ],
            log=rig.folder / f"{called}.log",
            environment=rig.environment,
        )

    def tgtd(self):
        """The pid of its tgtd; None while it is down."""
        return listener_of(TGT_SOCKETS / f"socket.{self.control_port}", question=LIST_PORTALS)

    def ready(self):
        client = Client(self.socket)
        with contextlib.closing(client), contextlib.suppress(grpc.RpcError):
            return client.Probe(seconds=2).ready.value
        return False


class AgentRig(Rig):
    """Arrays behind agents; the first is the default. `entries` are those of the controller's arrays file.

    The first array has the rig's `tgtds`.
    """

    def __init__(self, folder, pool, *, arrays=1, controller_options=(), **options):
        self.how_many, self.controller_options = arrays, controller_options
        super().__init__(folder, pool, split=True, **options)

    def make_controller(self, array):
        self.authority = Authority(self.folder / "pki")
        self.certificate, self.key = self.authority.issue(
            "controller", f"DNS:controller.{CLUSTER}.cluster.lunkeeper.io"
        )
        self.agents = [
            Agent(self, self.array_name, self.pool, self.portal, self.control_port, tgtds=self.tgtds)
        ]
        for number in range(1, self.how_many):
            name = f"{self.array_name}-{number}"
            pool = self.pool.parent / name
            pool.mkdir()
            self.agents.append(Agent(self, name, pool, f"127.0.0.1:{free_port()}", free_control_port()))
            self.cleanup.add(self._forget, self.agents[-1])
        self.arrays_file = self.folder / "arrays.json"
        self.write_arrays(self.entries())
        self.metrics_port = free_port()
        return Server(
            self,
            "controller",
            "controller",
            [
                f"--arrays={self.arrays_file}",
                f"--metrics-address=127.0.0.1:{self.metrics_port}",
                *self.controller_options,
            ],
        )

    def start(self, **environment):
        """A controller is ready before it has reached its arrays; tests need one that has."""
        super().start(**environment)
        wait_until(
            lambda: code_of(self.controller.client.ListVolumes)[0] == "OK",
            START_SECONDS,
            "the arrays are reached",
        )

    def reached(self):
        return [f"--array-name={agent.array_name}" for agent in self.agents]

    def entries(self):
        return [
            {
                "name": agent.array_name,
                "address": agent.address,
                "serverName": f"{agent.array_name}.example",
                "cert": str(self.certificate),
                "key": str(self.key),
                "ca": str(self.authority.certificate),
                "default": agent is self.agents[0],
            }
            for agent in self.agents
        ]

    def write_arrays(self, entries):
        """Atomically, as Kubernetes replaces a mounted file."""
        new = self.arrays_file.with_suffix(".new")
        new.write_text(json.dumps({"arrays": entries}, indent=2))
        new.rename(self.arrays_file)

    @staticmethod
    def _forget(agent):
        for suffix in ("", ".lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(TGT_SOCKETS / f"socket.{agent.control_port}{suffix}")
