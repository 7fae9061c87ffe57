"""The two writing programs of the fault tests (devices/libiscsi/testing), as objects."""

import json
import pathlib
import struct
import subprocess

from harness import places
from harness.cleanup import wait_until
from harness.processes import Daemon

GOOD, BAD_DATA, CANNOT_RUN, IO_ERROR = 0, 1, 2, 3


class BlockChecker:
    """Writes and checks stamped blocks on a device or file; goes on from its record in later runs and on other nodes."""

    def __init__(self, volume, *, threads=8, blocks=0, flush_every=256):
        """`volume`: where it is published now; its record goes with its name."""
        self.device = volume.path()
        self.record, self.log = (volume.rig.folder / f"{volume.name}.{end}" for end in ("record", "checker.log"))
        self.options = [f"--threads={threads}", f"--blocks={blocks}", f"--flush-every={flush_every}"]
        self.daemon = None

    def start(self, seconds=0):
        self.daemon = Daemon("block_checker", [places.BLOCK_CHECKER, "write", f"--device={self.device}",
                                               f"--record={self.record}", f"--seconds={seconds}", *self.options],
                             log=self.log, dies_with_us=True).start()
        self.wait_for_writes(1)
        return self

    def acknowledged(self):
        """How many writes were acknowledged, over all runs (a block's version counts them)."""
        if not self.record.exists():
            return 0
        data = self.record.read_bytes()
        return sum(acked for _, acked in struct.iter_unpack("<II", data[:len(data) // 8 * 8]))

    def wait_for_writes(self, more, seconds=30):
        """Until that many more were acknowledged, or the checker has ended."""
        wanted = self.acknowledged() + more
        wait_until(lambda: self.acknowledged() >= wanted or not self.daemon.running(), seconds,
                   lambda: f"{more} more writes\n{self.daemon.tail()}")

    def running(self):
        return self.daemon.running()

    def stop(self, seconds=60):
        """Its exit code and counters."""
        code = self.daemon.stop(seconds)
        lines = [line for line in self.daemon.log.read_text().split("\n") if line.startswith("{")]
        return code, json.loads(lines[-1]) if lines else {}

    def stop_good(self):
        code, counters = self.stop()
        assert code == GOOD, f"exit code {code}, {counters}\n{self.daemon.tail()}"
        return counters

    def verify(self, volume=None):
        """Reads every block once, where the volume is now: nothing acknowledged is lost."""
        device = volume.path() if volume else self.device
        done = subprocess.run([places.BLOCK_CHECKER, "verify", f"--device={device}", f"--record={self.record}"],
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == GOOD, f"exit code {done.returncode}\n{done.stdout}{done.stderr[-3000:]}"
        return json.loads(done.stdout)


class Zombie:
    """A writer that does not stop for a fence, from a publish context."""

    FIELDS = ("sent", "acked", "failed", "logins", "refused")

    def __init__(self, folder, name, context, *, depth=64, sessions=2):
        self.counters = pathlib.Path(folder) / f"{name}.counters"
        self.daemon = Daemon(name, [
            places.ZOMBIE_WRITER, f"--portal={context['portal']}", f"--target={context['target']}",
            f"--initiator={context['initiator']}", f"--user={context['chapUser']}", f"--secret={context['chapSecret']}",
            f"--lun={context['lun']}", f"--depth={depth}", f"--sessions={sessions}", f"--counters={self.counters}"],
            log=pathlib.Path(folder) / f"{name}.log", dies_with_us=True)

    def start(self):
        self.daemon.start()
        return self

    def count(self, field):
        try:
            data = self.counters.read_bytes()
        except FileNotFoundError:
            return 0
        return struct.unpack("<5Q", data)[self.FIELDS.index(field)] if len(data) == 40 else 0

    def wait_for(self, field, more, seconds=20):
        wanted = self.count(field) + more
        wait_until(lambda: self.count(field) >= wanted, seconds, lambda: f"{field} rises by {more}\n{self.daemon.tail()}", 0.005)

    def kill(self):
        self.daemon.kill()
