"""Slows tgtd's writes and flushes, by a library of devices/libiscsi/testing; limits memory, by a cgroup."""

import os
from collections.abc import Iterable
from pathlib import Path

from harness import places
from harness.cleanup import wait_until
from harness.rig import Rig

SLOW_WRITES = places.BUILD / "devices/libiscsi/libslow_writes.so"


def rig(folder: Path, name: str, pool: Path) -> Rig:
    """A rig whose tgtd can be slowed.

    Two writes of a volume run at once, so that one can overtake the other.
    """
    return Rig(folder / name, pool, environment=_environment(folder), array_options=["--tgtd-io-threads=2"])


def _environment(folder: Path) -> dict[str, str]:
    """The library does nothing in other programs."""
    set_delay(folder, 0)
    set_flush_delay(folder, 0)
    # AddressSanitizer wants to be the first library. Here this one is the first, in every program.
    asan = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "verify_asan_link_order=0"]))
    return {
        "LD_PRELOAD": str(SLOW_WRITES),
        "SLOW_WRITES_FILE": str(_delay_file(folder)),
        "ASAN_OPTIONS": asan,
    }


def _delay_file(folder: Path) -> Path:
    return folder / "slow-writes-ms"


def set_delay(folder: Path, milliseconds: int) -> None:
    """Every write tgtd begins from now on takes that much longer."""
    _delay_file(folder).write_text(f"{milliseconds}\n")


def set_flush_delay(folder: Path, milliseconds: int) -> None:
    """Likewise every flush."""
    _delay_file(folder).with_suffix(".flushes").write_text(f"{milliseconds}\n")


class MemoryCgroup:
    """cgroup v1 where the machine has it, else v2."""

    def __init__(self, name: str, limit_bytes: int) -> None:
        root = Path("/sys/fs/cgroup")
        v1 = (root / "memory").is_dir()
        self.path = root / ("memory" if v1 else "") / name
        self.path.mkdir()
        (self.path / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(str(limit_bytes))

    def command(self, argv: Iterable[object], first_to_go: bool = False) -> list[str]:
        """The same command, inside the cgroup from its first instruction.

        `first_to_go`: the OOM killer chooses it first, as it does with a pod's process.
        """
        score = "echo 1000 > /proc/self/oom_score_adj && " if first_to_go else ""
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && {score}exec "$@"', "sh", *map(str, argv)]

    def remove(self) -> None:
        def gone() -> bool:
            try:
                self.path.rmdir()
                return True
            except OSError:
                return False

        wait_until(gone, 10, f"{self.path} is empty")
