"""Processes of a test: started with their log in a file, known by pid, never by name."""

import contextlib
import os
import pathlib
import signal
import socket
import struct
import subprocess

from harness.cleanup import wait_until

# In the environment of everything a test starts, and so of everything that starts: how what outlives its parent is found.
MARK = "LUNKEEPER_TEST"


class Daemon:
    """A program that runs until it is ended. May be started again after its end, with another environment."""

    def __init__(self, name, argv, *, log, environment=None, dies_with_us=False):
        self.name, self.argv, self.log = name, [str(arg) for arg in argv], pathlib.Path(log)
        self.environment = dict(environment or {})
        if dies_with_us:  # by the kernel's hand, when the thread that starts it ends
            self.argv = ["setpriv", "--pdeathsig", "KILL", *self.argv]
        self.process = None

    def start(self, **environment):
        assert not self.running(), f"{self.name} runs already"
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(
                self.argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, **self.environment, **environment})
        return self

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """SIGKILL, and wait."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self, seconds=20):
        """SIGTERM, and wait; the exit code."""
        if self.running():
            self.process.terminate()
        return self.process.wait(seconds)

    def tail(self, lines=30):
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"--- {self.name}, end of {self.log}:\n" + "\n".join(text.split("\n")[-lines:])


def marked_with(mark):
    """Every process with this mark in its environment: {pid: command line}."""
    found = {}
    wanted = f"{MARK}={mark}".encode()
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # gone meanwhile, or a zombie
    return found


def kill_pid(pid):
    """SIGKILL, and wait until it is gone, child of ours or not."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    wait_until(lambda: not alive(pid), 10, f"process {pid} ends after SIGKILL")


def state_of(pid):
    """The kernel's letter for it: R, S, D, T …; X: there is none."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def alive(pid):
    return state_of(pid) not in "ZX"


def children_of(pid):
    """Whichever of its threads has them."""
    found = []
    for thread in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found.extend(int(child) for child in thread.read_text().split())
    return found


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def listener_of(path, kind=socket.SOCK_STREAM, question=b""):
    """The pid of who listens on a unix socket; None if nobody does. `question`: for a listener that wants one, and its answer
    taken, before a connection may end."""
    with socket.socket(socket.AF_UNIX, kind) as client:
        client.settimeout(2)
        try:
            client.connect(str(path))
        except OSError:
            return None
        pid, _, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if question:
            with contextlib.suppress(OSError):  # it has died, or hangs
                client.sendall(question)
                client.recv(1)
        return pid


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
