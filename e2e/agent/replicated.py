"""Several controllers of one cluster, each with a time of day of its own. What they take for the steady clock
is the machine's, which nobody can set.
"""

import threading
import time

import grpc

from agent.coordinated import CoordinatedRig, token
from cluster.kubectl import seconds_of
from harness.cleanup import wait_until
from harness.clock import build_clock, clock_variables, set_clock
from harness.processes import free_port
from harness.rig import Server

CONTROLLER_ACCOUNT = "system:serviceaccount:lunkeeper:lunkeeper-controller"
LEASE = "lunkeeper-failover"
LEASE_SECONDS = 4


class ReplicatedRig(CoordinatedRig):
    """`ahead`: {name of a controller: how many seconds its clock is ahead}. The first one leads at first."""

    def __init__(self, folder, pool, ahead, **options):
        self.ahead, self.controllers, self.running = ahead, {}, 1
        super().__init__(folder, pool, **options)
        try:
            wait_until(lambda: self.lease().get("holderIdentity"), 30, "the first controller leads")
            self.running = len(ahead)
            self.start()
        except BaseException:
            self.close()
            raise

    def servers(self):
        """The others run once the first one leads."""
        return [*super().servers(), *list(self.controllers.values())[1 : self.running]]

    def lease(self):
        leases = self.api.get("/apis/coordination.k8s.io/v1/leases")["items"]
        return next((each["spec"] for each in leases if each["metadata"]["name"] == LEASE), {})

    def set(self, name, seconds):
        """How far the clock of a controller is ahead of the machine's."""
        set_clock(self.folder / f"{name}.clock", seconds)

    def step(self, name, seconds):
        """Sets the clock of the leader, and waits until it goes by it."""
        self.set(name, seconds)

        def follows():
            shown = seconds_of(self.lease()["renewTime"]) - time.time()
            return abs(shown - seconds) < 60

        wait_until(follows, 30, lambda: f"the leader's clock is {seconds} s ahead: {self.lease()}", pause=0.1)

    def _join_cluster(self):
        super()._join_cluster()
        first, *others = self.ahead
        ports = {first: self.coordinator_port, **{name: free_port() for name in others}}
        self.addresses = [f"--coordinator-address=127.0.0.1:{port}" for port in ports.values()]
        self.controllers = {first: self.controller}
        for name in others:
            options = [f"--arrays={self.arrays_file}", f"--metrics-address=127.0.0.1:{free_port()}"]
            self.controllers[name] = Server(self, f"controller-{name}", "controller", options)
            self._coordinate(self.controllers[name], ports[name])
        library = self.folder / "clock.so"
        build_clock(library)
        for name, server in self.controllers.items():
            path = self.folder / f"{name}.token"
            path.write_text(token(name, CONTROLLER_ACCOUNT))
            self.set(name, self.ahead[name])
            variables = clock_variables(library, self.folder / f"{name}.clock")
            server.argv = [
                "env",
                *(f"{variable}={value}" for variable, value in variables.items()),
                *server.argv,
                *self.addresses,
                "--coordinator-server-name=coordinator.example",
                f"--coordinator-ca={self.authority.certificate}",
                f"--token-file={path}",
                f"--controller-account={CONTROLLER_ACCOUNT}",
            ]

    def _let_ask(self, node):
        super()._let_ask(node)
        node.server.argv += self.addresses[1:]


class Leaders:
    """Asks every controller again and again whether it leads, for as long as the context lasts."""

    def __init__(self, rig):
        self.rig, self.over = rig, threading.Event()
        self.seen = []  # (when, which controller), each time that one said so
        self.thread = threading.Thread(target=self._look)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.over.set()
        self.thread.join()

    def _look(self):
        while not self.over.wait(0.1):
            for name, server in self.rig.controllers.items():
                if server.running() and self._leads(server):
                    self.seen.append((time.monotonic(), name))

    @staticmethod
    def _leads(server):
        try:
            said = server.client.Status(seconds=5).failover
        except (grpc.RpcError, ValueError):  # it ends at this moment
            return False
        return bool(said) and said[0].startswith("this replica leads")

    def names(self):
        return {name for _, name in self.seen}

    def last(self):
        return self.seen[-1][1]

    def overlaps(self):
        """Where one led before and after another one did, with no time for it to lose and win the lease."""
        return [
            each
            for each in zip(self.seen, self.seen[1:], self.seen[2:])
            if each[0][1] == each[2][1] != each[1][1] and each[2][0] - each[0][0] < LEASE_SECONDS
        ]
