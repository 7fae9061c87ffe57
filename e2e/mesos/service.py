"""The provider's plugin: launched in a fresh folder, probed, watched, and called.

A plugin that ended is launched again before the next call, as Mesos' container daemon does. What a call
meets on its way is decided by `faults` (faults.py), which by default does nothing.
"""

import contextlib
import os
import tempfile
import time

import grpc

from harness.cleanup import wait_until
from harness.csi import Client
from harness.rig import Server
from mesos.faults import NoFaults
from mesos.protocols import ONE, ZERO

SOCKET_SECONDS = 60  # Mesos gives a plugin as long to make its socket
CALL_SECONDS = 60  # Mesos' deadline of each call
RETRY_SECONDS = 0.1  # Mesos waits longer
PAUSE_SECONDS = 0.005  # between two looks at a running call
# The codes after which Mesos repeats CreateVolume and DeleteVolume by itself.
RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class CallFailed(Exception):
    """A call that was answered with an error, or not at all."""

    def __init__(self, name, code, text):
        super().__init__(f"{name}: {code.name}: {text}")
        self.name, self.code = name, code


class Plugin(Server):
    """One `lunkeeper serve`, which learns where to listen from CSI_ENDPOINT."""

    def __init__(self, rig, name, mode, options):
        super().__init__(rig, name, mode, options)
        self.argv = [argument for argument in self.argv if not argument.startswith("--endpoint=")]

    def start(self, **environment):
        return super().start(CSI_ENDPOINT=f"unix://{self.socket}", **environment)


class Service:
    """`work`: the provider's folder, which outlives it."""

    def __init__(self, plugin, work, faults=None):
        self.plugin, self.faults = plugin, faults or NoFaults()
        self.folder = self._find_folder(work)
        self.plugin.socket = self.folder / "endpoint.sock"
        self.protocol = None  # until the plugin was probed
        self.calls = []  # names, in order
        self._client, self._launch = None, None

    @staticmethod
    def _find_folder(work):
        """The same one in each life of the provider; its name stands in the provider's folder."""
        link = work / "endpoint"
        if not link.exists():
            work.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(tempfile.mkdtemp(prefix="mesos-csi-", dir=work.parent))
        return link.resolve()

    def endpoint(self):
        """The client of a plugin that runs and was probed."""
        if self._client is None or not self.plugin.running():
            self.launch()
        return self._client

    def launch(self):
        self._start_plugin()
        wait_until(self._listens, SOCKET_SECONDS, lambda: f"the plugin listens\n{self.plugin.tail()}", 0.01)
        self.close()
        if self.protocol is None:
            self.protocol = self._find_protocol()
            self._client = Client(self.plugin.socket, self.protocol.module)
            return
        self._client = Client(self.plugin.socket, self.protocol.module)
        code = self._probe(self._client)
        assert code is None, f"the probe of {self.protocol.number}: {code}\n{self.plugin.tail()}"

    def _start_plugin(self):
        """Mesos removes the socket of a plugin that has ended."""
        if not self.plugin.running():
            self.plugin.socket.unlink(missing_ok=True)
            self.plugin.start()

    def _listens(self):
        """One that ended is started again: a child of a killed plugin may hold the pool for a moment."""
        self._start_plugin()
        return self.plugin.socket.exists()

    def _find_protocol(self):
        """1.x, unless the plugin says that it does not have it."""
        for protocol in (ONE, ZERO):
            client = Client(self.plugin.socket, protocol.module)
            try:
                code = self._probe(client)
            finally:
                client.close()
            if code is None:
                return protocol
            assert code is grpc.StatusCode.UNIMPLEMENTED, f"the probe of {protocol.number}: {code}"
        raise AssertionError("the plugin has no version that we know")

    def _probe(self, client):
        """None, or the error's code."""
        self.calls.append("Probe")
        try:
            client.Probe(seconds=CALL_SECONDS, wait=True)
            return None
        except grpc.RpcError as error:
            return error.code()

    def call(self, name, /, *, repeat=False, **fields):
        """One call. `repeat`: until the plugin has answered, however often it is killed meanwhile."""
        while True:
            client = self.endpoint()
            self.faults.pass_point(f"before {name}")
            self.calls.append(name)
            try:
                answer = self._ask(client, name, fields)
                self.faults.pass_point(f"after {name}")
                return answer
            except grpc.RpcError as error:
                if not repeat or error.code() not in RETRIED:
                    raise CallFailed(name, error.code(), error.details()) from None
            time.sleep(RETRY_SECONDS)

    def _ask(self, client, name, fields):
        """The answer. A plugin that ends meanwhile is started again: a call waits for its connection."""
        request, stub = client.methods[name]
        future = stub.future(request(**fields), timeout=CALL_SECONDS, wait_for_ready=True)
        begun, plan = time.monotonic(), self.faults.plan_call(name)
        while True:
            with contextlib.suppress(grpc.FutureTimeoutError):
                return future.result(PAUSE_SECONDS)
            if plan is not None and time.monotonic() >= begun + plan[0]:
                act, plan = plan[1], None
                act()
            self._start_plugin()

    def close(self):
        if self._client is not None:
            self._client.close()
        self._client = None

    def leftovers(self):
        """What lies beside the socket."""
        return [name for name in os.listdir(self.folder) if name != self.plugin.socket.name]
