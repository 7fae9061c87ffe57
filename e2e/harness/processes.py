"""Processes of a test: started with their log in a file, known by pid, never by name."""

import contextlib
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from harness.cleanup import wait_until

# A variable in the environment of each process that a test starts. Children inherit it, so that a process
# that outlives its parent is found.
MARK = "LUNKEEPER_TEST"


class Daemon:
    """A program that runs until it is ended. May be started again after its end, with another environment."""

    def __init__(
        self,
        name: str,
        argv: Iterable[object],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        dies_with_us: bool = False,
    ) -> None:
        self.name, self.argv, self.log = name, [str(arg) for arg in argv], pathlib.Path(log)
        self.environment = dict(environment or {})
        if dies_with_us:  # the kernel kills it when the thread that starts it ends
            self.argv = ["setpriv", "--pdeathsig", "KILL", *self.argv]
        self.process: subprocess.Popen[Any] | None = None

    def start(self, **environment: str) -> Self:
        assert not self.running(), f"{self.name} runs already"
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(
                self.argv,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **self.environment, **environment},
            )
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} was never started"
        return self.process.pid

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL, and wait."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self, seconds: float = 20) -> int:
        """SIGTERM, and wait; the exit code."""
        assert self.process is not None, f"{self.name} was never started"
        if self.running():
            self.process.terminate()
        return self.process.wait(seconds)

    def tail(self, lines: int = 30) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"--- {self.name}, end of {self.log}:\n" + "\n".join(text.split("\n")[-lines:])


def marked_with(mark: str) -> dict[int, str]:
    """Every process with this mark in its environment: {pid: command line}."""
    found = {}
    wanted = f"{MARK}={mark}".encode()
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                )
        except OSError:
            continue  # gone meanwhile, or a zombie
    return found


def kill_pid(pid: int) -> None:
    """SIGKILL, and wait until it is gone, child of ours or not."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    wait_until(lambda: not alive(pid), 10, f"process {pid} ends after SIGKILL")


def state_of(pid: int) -> str:
    """The kernel's letter for it: R, S, D, T …; X: there is none."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def alive(pid: int) -> bool:
    return state_of(pid) not in "ZX"


def children_of(pid: int) -> list[int]:
    """The pids of its children, those of all its threads."""
    found: list[int] = []
    for thread in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found.extend(int(child) for child in thread.read_text().split())
    return found


def descendants(pid: int | None) -> list[int]:
    """A process and all its descendants, also those in containers, since a host has namespaces of its own."""
    found = [pid] if pid is not None else []
    for each in found:
        found.extend(children_of(each))
    return found


def signal_if_there(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def end_in_order(pids: Sequence[int], seconds: float) -> None:
    """SIGTERM to each; and SIGKILL, after so many seconds, to each that is still there."""
    for pid in pids:
        signal_if_there(pid, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in pids:
        signal_if_there(pid, signal.SIGKILL)


def command_of(pid: int) -> list[str]:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def listener_of(
    path: Path, kind: socket.SocketKind = socket.SOCK_STREAM, question: bytes = b""
) -> int | None:
    """The pid of the process that listens on a unix socket; None when there is none.

    `question`: for a listener that wants a request, and its answer read, before a connection may end.
    """
    with socket.socket(socket.AF_UNIX, kind) as client:
        client.settimeout(2)
        try:
            client.connect(str(path))
        except OSError:
            return None
        pid = int(struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
        if question:
            with contextlib.suppress(OSError):  # it has died, or hangs
                client.sendall(question)
                client.recv(1)
        return pid


def free_port() -> int:
    """None that the kernel gives to an outgoing connection before it is used."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of so many ports in a row."""
    while True:
        first = random.randrange(15000, 30000)
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for port in range(first, first + count):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
