"""Runs inside the guest: a whole Lunkeeper, and one story with it. Its last line goes to the test outside.

python3 -m guest.life STORY      # one of STORIES; tests start it with Guest.story
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator

from harness import pool
from harness import rig as rig_module
from harness.cleanup import Cleanup
from harness.growth import check_medium, kill_while_they_grow, measure_stage
from harness.leaks import Leaks
from harness.rig import Rig
from harness.volume import MIB, Volume

STARTS = 5
ROUNDS = int(os.environ.get("GROWTH_ROUNDS", "2"))  # 50 by name
rig_module.START_SECONDS = 120  # an emulated processor, on a machine that may be busy


@contextlib.contextmanager
def lunkeeper() -> Iterator[Rig]:
    """One server in `all` mode with its data path, and nothing left behind."""
    with Cleanup() as cleanup:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lk-"))
        rig = Rig(folder / "rig", pool.xfs_pool(folder, cleanup), start=False)
        cleanup.add(rig.close)
        start(rig)
        leaks = Leaks(rig)
        try:
            yield rig
        except BaseException:
            print(rig.logs())
            raise
        left = leaks.found()
        assert not left, f"left behind: {left}"


def start(rig: Rig) -> None:
    """A server that gives up on a slow tgtd is started again, as an orchestrator does."""
    for attempt in range(STARTS):
        try:
            return rig.start()
        except RuntimeError:
            if attempt + 1 == STARTS:
                raise


class Appender:
    """A pod: appends to a file, makes each piece durable, and stops at the first error."""

    PIECE = 64 << 10

    def __init__(self, path: pathlib.Path) -> None:
        self.path, self.durable, self.error = path, 0, ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._append)
        self._thread.start()

    @staticmethod
    def piece(number: int) -> bytes:
        return hashlib.sha256(str(number).encode()).digest() * (Appender.PIECE // 32)

    def _append(self) -> None:
        try:
            with open(self.path, "wb", buffering=0) as out:
                while not self._stop.is_set():
                    out.write(self.piece(self.durable))
                    os.fsync(out.fileno())
                    self.durable += 1
        except OSError as error:
            self.error = str(error)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def check(self) -> None:
        with open(self.path, "rb") as data:
            for number in range(self.durable):
                assert data.read(self.PIECE) == self.piece(number), (
                    f"piece {number} of {self.durable} is not what was written"
                )


def size_of(mount_point: pathlib.Path) -> int:
    found = os.statvfs(mount_point)
    return found.f_blocks * found.f_frsize


def grow_under_a_writer() -> dict[str, object]:
    """Created, staged, written to, grown while a pod writes, and whole afterwards."""
    with lunkeeper() as rig:
        volume = Volume(rig, rig.nodes[0], "grows", fs="ext4", size=64 * MIB).up()
        before = size_of(volume.target)
        pod = Appender(volume.target / "data")
        try:
            volume.controller_expand(256 * MIB).node_expand()
        finally:
            pod.stop()
        after = size_of(volume.target)
        assert not pod.error, pod.error
        pod.check()
        volume.down()
        check_medium(rig, volume)
        volume.delete()
        return {"before": before, "after": after, "pieces": pod.durable}


def grow_when_staged() -> dict[str, object]:
    """Nodes killed while a stage grows a volume; without a kill, no tool of e2fsprogs grows it."""
    with lunkeeper() as rig:
        seconds = measure_stage(rig)
        log = rig.nodes[0].server.log.read_text()
        killed = kill_while_they_grow(rig, ROUNDS, seconds)
        return {"seconds": seconds, "unmounted": log.count("grows unmounted"), "killed": killed}


def meet_poison() -> dict[str, object]:
    """A volume whose superblock wants a panic, with a folder's entry that leads to a wiped inode."""
    with lunkeeper() as rig:
        volume = Volume(rig, rig.nodes[0], "poisoned", fs="ext4", size=64 * MIB).up()
        volume.write_file("file", b"damaged")
        volume.down()
        medium = str(rig.medium_of(volume))
        for tool in (["tune2fs", "-e", "panic"], ["debugfs", "-w", "-R", "clri /file"]):
            subprocess.run([*tool, medium], check=True, stdout=subprocess.DEVNULL, timeout=60)
        volume.up()
        said = {}
        for name, mode in ("file", "rb"), ("new", "wb"):
            try:
                with open(volume.target / name, mode):
                    said[name] = ""
            except OSError as error:
                said[name] = str(error.strerror)
        volume.down().delete()
        return dict(said)


STORIES: dict[str, Callable[[], dict[str, object]]] = {
    "grow-under-a-writer": grow_under_a_writer,
    "grow-when-staged": grow_when_staged,
    "meet-poison": meet_poison,
}


if __name__ == "__main__":
    print(json.dumps(STORIES[sys.argv[1]]()))
