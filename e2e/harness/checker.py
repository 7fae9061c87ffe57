"""The two writing programs of the fault tests (devices/libiscsi/testing), as objects."""

import json
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from harness import places
from harness.cleanup import wait_until
from harness.processes import Daemon
from harness.volume import Volume

GOOD, BAD_DATA, CANNOT_RUN, IO_ERROR = 0, 1, 2, 3


class BlockChecker:
    """Writes and checks stamped blocks on a device or file.

    Its record outlives it, so that a later run, also on another node, continues from there.
    """

    def __init__(
        self, volume: Volume, *, threads: int = 8, blocks: int = 0, flush_every: int = 256, pause_ms: int = 2
    ) -> None:
        """`volume`: where it is published now; its record goes with its name. The pause of each thread leaves
        a processor to what is tested; with eight of them some write is under way at any time.
        """
        self.device = volume.path()
        self.record, self.log = (
            volume.rig.folder / f"{volume.name}.{end}" for end in ("record", "checker.log")
        )
        self.options = [f"--threads={threads}", f"--blocks={blocks}", f"--flush-every={flush_every}"]
        self.options.append(f"--pause-ms={pause_ms}")
        self.daemon: Daemon

    def start(self, seconds: float = 0) -> Self:
        self.daemon = Daemon(
            "block_checker",
            [
                places.BLOCK_CHECKER,
                "write",
                f"--device={self.device}",
                f"--record={self.record}",
                f"--seconds={seconds}",
                *self.options,
            ],
            log=self.log,
            dies_with_us=True,
        ).start()
        self.wait_for_writes(1)
        return self

    def acknowledged(self) -> int:
        """How many writes were acknowledged, over all runs (a block's version counts them)."""
        if not self.record.exists():
            return 0
        data = self.record.read_bytes()
        return sum(acked for _, acked in struct.iter_unpack("<II", data[: len(data) // 8 * 8]))

    def wait_for_writes(self, more: int, seconds: float = 30) -> None:
        """Until that many more were acknowledged, or the checker has ended."""
        wanted = self.acknowledged() + more
        wait_until(
            lambda: self.acknowledged() >= wanted or not self.daemon.running(),
            seconds,
            lambda: f"{more} more writes\n{self.daemon.tail()}",
        )

    def running(self) -> bool:
        return self.daemon.running()

    def stop(self, seconds: float = 60) -> tuple[int, dict[str, Any]]:
        """Its exit code and counters."""
        code = self.daemon.stop(seconds)
        lines = [line for line in self.daemon.log.read_text().split("\n") if line.startswith("{")]
        return code, json.loads(lines[-1]) if lines else {}

    def stop_good(self) -> dict[str, Any]:
        code, counters = self.stop()
        assert code == GOOD, f"exit code {code}, {counters}\n{self.daemon.tail()}"
        return counters

    def verify(self, volume: Volume | None = None) -> dict[str, Any]:
        """Reads every block once, where the volume is now: nothing acknowledged is lost."""
        device = volume.path() if volume else self.device
        done = subprocess.run(
            [places.BLOCK_CHECKER, "verify", f"--device={device}", f"--record={self.record}"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == GOOD, f"exit code {done.returncode}\n{done.stdout}{done.stderr[-3000:]}"
        counters: dict[str, Any] = json.loads(done.stdout)
        return counters


class Zombie:
    """A writer that does not stop for a fence, from a publish context."""

    FIELDS = ("sent", "acked", "failed", "logins", "refused")

    def __init__(
        self, folder: Path, name: str, context: Mapping[str, str], *, depth: int = 64, sessions: int = 2
    ) -> None:
        self.counters = Path(folder) / f"{name}.counters"
        self.daemon = Daemon(
            name,
            [
                places.ZOMBIE_WRITER,
                f"--portal={context['portal']}",
                f"--target={context['target']}",
                f"--initiator={context['initiator']}",
                f"--user={context['chapUser']}",
                f"--secret={context['chapSecret']}",
                f"--lun={context['lun']}",
                f"--depth={depth}",
                f"--sessions={sessions}",
                f"--counters={self.counters}",
            ],
            log=Path(folder) / f"{name}.log",
            dies_with_us=True,
        )

    def start(self) -> Self:
        self.daemon.start()
        return self

    def count(self, field: str) -> int:
        try:
            data = self.counters.read_bytes()
        except FileNotFoundError:
            return 0
        return int(struct.unpack("<5Q", data)[self.FIELDS.index(field)]) if len(data) == 40 else 0

    def wait_for(self, field: str, more: int, seconds: float = 20) -> None:
        wanted = self.count(field) + more
        wait_until(
            lambda: self.count(field) >= wanted,
            seconds,
            lambda: f"{field} rises by {more}\n{self.daemon.tail()}",
            0.005,
        )

    def kill(self) -> None:
        self.daemon.kill()
