"""Making things slow or small: tgtd's writes (by the library of devices/libiscsi/testing), and memory (by a cgroup)."""

import os
import pathlib

from harness import places
from harness.cleanup import wait_until
from harness.rig import Rig

SLOW_WRITES = places.BUILD / "devices/libiscsi/libslow_writes.so"


def rig(folder, name, pool):
    """A rig whose tgtd can be slowed, and carries out two of a volume's writes at once, or none could be overtaken."""
    return Rig(folder / name, pool, environment=_environment(folder), array_options=["--tgtd-io-threads=2"])


def _environment(folder):
    """The library does nothing in other programs."""
    set_delay(folder, 0)
    # AddressSanitizer wants to be the first library; in the program that starts tgtd this one is, and does nothing.
    asan = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "verify_asan_link_order=0"]))
    return {"LD_PRELOAD": str(SLOW_WRITES), "SLOW_WRITES_FILE": str(_delay_file(folder)), "ASAN_OPTIONS": asan}


def _delay_file(folder):
    return pathlib.Path(folder) / "slow-writes-ms"


def set_delay(folder, milliseconds):
    """Every write tgtd begins from now on takes that much longer."""
    _delay_file(folder).write_text(f"{milliseconds}\n")


class MemoryCgroup:
    """cgroup v1 where the machine has it, else v2."""

    def __init__(self, name, limit_bytes):
        root = pathlib.Path("/sys/fs/cgroup")
        v1 = (root / "memory").is_dir()
        self.path = root / ("memory" if v1 else "") / name
        self.path.mkdir()
        (self.path / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(str(limit_bytes))

    def command(self, argv, first_to_go=False):
        """The same command, run inside from its first instruction; as the OOM killer's first choice, as a pod's process is."""
        score = "echo 1000 > /proc/self/oom_score_adj && " if first_to_go else ""
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && {score}exec "$@"', "sh", *map(str, argv)]

    def remove(self):
        def gone():
            try:
                self.path.rmdir()
                return True
            except OSError:
                return False
        wait_until(gone, 10, f"{self.path} is empty")
