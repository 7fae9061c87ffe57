"""Kills a process at a fail point (base/fail_point.h) while a volume is in use, then goes on as an
orchestrator does.

That is: whatever died is started again, and the failed call is repeated.
"""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import grpc

from harness import places
from harness.cleanup import wait_until
from harness.processes import alive
from harness.rig import Datapath, Rig

# The codes on which an orchestrator repeats a call.
AGAIN = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)
STEP_SECONDS = 60
# How often one step may be hit: the repeated call often meets the same point again, a little further on.
HITS_A_STEP = 3
VICTIMS = ("self", "tgtd", "worker", "supervisor")


def repeat(
    call: Callable[[], object], seconds: float = 240, on: Collection[grpc.StatusCode] = AGAIN
) -> None:
    """As an orchestrator does."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            call()
            return
        except grpc.RpcError as error:
            if error.code() not in on or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def fail_points() -> list[str]:
    return subprocess.run(
        [places.LUNKEEPER, "fail-points"], check=True, capture_output=True, text=True
    ).stdout.split()


class FailPoint:
    """One fail point in every process of a rig; `victim` dies there.

    `arm` switches it on; it then fires once.
    """

    def __init__(self, rig: Rig, name: str, victim: str = "self") -> None:
        self.rig, self.name, self.victim = rig, name, victim
        self.fired_file = rig.folder / "fail-point-fired"
        self.victim_file = rig.folder / "victim.pid"
        self.hits = 0
        self.disarm()

    def environment(self) -> dict[str, str]:
        return {
            "LUNKEEPER_FAIL_POINT": self.name + ("" if self.victim == "self" else f":exec={self._hook()}"),
            "LUNKEEPER_FAIL_POINT_ONCE": str(self.fired_file),
        }

    def _hook(self) -> Path:
        hook = self.rig.folder / f"kill-{self.victim}"
        hook.write_text(f"#!/bin/sh\nkill -9 $(cat {self.victim_file})\n")
        hook.chmod(0o755)
        return hook

    def arm(self) -> None:
        if self.victim != "self":
            self.victim_file.write_text(str(self._victim_pid()))
        self.fired_file.unlink(missing_ok=True)

    def disarm(self) -> bool:
        """True if it has fired since it was armed."""
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.fired_file, os.O_CREAT | os.O_EXCL))
            return False
        return True

    def fired(self) -> bool:
        return self.fired_file.exists()

    def await_death(self) -> None:
        """After it has fired: the victim takes some milliseconds to die, and looks well meanwhile."""
        if self.victim != "self":
            victim = int(self.victim_file.read_text())
            wait_until(lambda: not alive(victim), 10, f"the {self.victim} dies")

    def _victim_pid(self) -> int:
        rig, datapath = self.rig, self.rig.nodes[0].datapath
        pids: dict[str, Callable[[], int | None]] = {
            "tgtd": rig.tgtd,
            "worker": datapath.worker,
            "supervisor": lambda: datapath.pid,
        }
        find = pids[self.victim]
        return wait_until(find, 20, f"there is a {self.victim} to kill")


class Survivor:
    """Runs steps on a rig, with one fail point armed in each, and restarts processes that died."""

    def __init__(self, rig: Rig, point: FailPoint) -> None:
        self.rig, self.point = rig, point
        self.supervisor_deaths = 0

    def restart(self) -> None:
        """Restarts the whole rig with the fail point armed: start-up has fail points, too."""
        self.stop()
        for node in self.rig.nodes:
            (node.state / "node-instance").unlink(missing_ok=True)
        self.rig.environment = {**self.rig.environment, **self.point.environment()}
        for daemon in self.rig.daemons():
            daemon.environment = dict(self.rig.environment)
        if self.point.victim == "self":
            self.point.arm()
        self.revive()
        self._count()

    def stop(self) -> None:
        for server in self.rig.servers():
            if server.running():
                server.stop()
        for node in self.rig.nodes:
            node.datapath.kill()

    def revive(self) -> None:
        """Starts what is not running, again and again, until everything is ready."""

        def ready() -> bool:
            for daemon in self.rig.daemons():
                if not daemon.running():
                    self.supervisor_deaths += isinstance(daemon, Datapath) and daemon.process is not None
                    daemon.start()
            return all(daemon.ready() for daemon in self.rig.daemons())

        wait_until(ready, STEP_SECONDS, lambda: f"the rig comes up again\n{self.rig.logs()}")

    def _count(self) -> bool:
        if self.point.disarm():
            self.point.hits += 1
            return True
        return False

    def step(self, name: str, call: Callable[[], object]) -> None:
        """Runs one step with the point armed, and repeats it until it succeeds.

        Processes that died are restarted.
        """
        deadline = time.monotonic() + STEP_SECONDS
        hits = 0
        self.point.arm()
        while True:
            with self._data_paths_restarted():
                failed = self._try(call)
            fired = self._count()
            if fired:
                self.point.await_death()
            if fired or not all(daemon.running() for daemon in self.rig.daemons()):
                self.revive()
            if failed is None:
                return
            # A process that dies may fail the call in any way. A healthy one answers with a code of AGAIN.
            if not fired and failed.code() not in AGAIN:
                raise AssertionError(f"{name}: {failed.code().name}: {failed.details()}") from failed
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{name}: still {failed.code().name} after {STEP_SECONDS} s: {failed.details()}"
                ) from failed
            hits += fired
            if hits < HITS_A_STEP:
                self.point.arm()
            time.sleep(0.05)

    @contextlib.contextmanager
    def _data_paths_restarted(self) -> Iterator[None]:
        """As kubelet does: I/O of a call waits for the next data path, and ends in no error before."""
        over = threading.Event()

        def restart() -> None:
            while not over.wait(0.05):
                for datapath in [node.datapath for node in self.rig.nodes]:
                    if not datapath.running():
                        self.supervisor_deaths += 1
                        datapath.start()

        thread = threading.Thread(target=restart)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @staticmethod
    def _try(call: Callable[[], object]) -> grpc.RpcError | None:
        try:
            call()
        except grpc.RpcError as error:
            return error
        return None
