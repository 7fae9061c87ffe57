"""Writers that depend on each other across volumes: each writes its record to the next volume only when the
one before has acknowledged it.

    with DependentWriters([volume_a, volume_b, volume_c]) as writers: ...
    broken(files_of_snapshots)      # in the same order

A writer goes through its own slots again and again, and its numbers only rise. So at every moment, and in
every consistent snapshot, a slot of a volume has at least the number that the next volume's has.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from harness.cleanup import wait_until
from harness.volume import Volume

WRITERS, SLOTS, BLOCK = 4, 64, 4096


class DependentWriters:
    def __init__(self, volumes: Sequence[Volume]) -> None:
        self.devices = [os.open(volume.target, os.O_RDWR | os.O_DIRECT) for volume in volumes]
        self.written = [0] * WRITERS  # records that all volumes have acknowledged
        self.errors: list[OSError] = []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]

    def _write(self, writer: int) -> None:
        with mmap.mmap(-1, BLOCK) as block:
            number = 0
            while not self.over.is_set():
                number += 1
                block[:8] = struct.pack("<Q", number)
                offset = (writer * SLOTS + number % SLOTS) * BLOCK
                try:
                    for device in self.devices:
                        os.pwrite(device, block, offset)
                except OSError as error:
                    self.errors.append(error)
                    return
                self.written[writer] = number

    def wait_for_records(self, more: int, seconds: float = 60) -> None:
        """Until each writer has written so many more; fails if one has ended."""
        wanted = [number + more for number in self.written]
        wait_until(
            lambda: self.errors or all(now >= want for now, want in zip(self.written, wanted)),
            seconds,
            lambda: f"the writers go on: {self.written}, wanted {wanted}",
        )
        assert not self.errors, self.errors

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        for device in self.devices:
            os.close(device)


def records(file: Path) -> list[int]:
    """The number in each slot."""
    with open(file, "rb") as opened:
        return [
            struct.unpack("<Q", os.pread(opened.fileno(), 8, slot * BLOCK).ljust(8, b"\0"))[0]
            for slot in range(WRITERS * SLOTS)
        ]


def broken(files: Sequence[Path]) -> list[str]:
    """What a consistent group cannot have: a record without the one that it waited for."""
    found = []
    for earlier, later in zip(files, files[1:]):
        for slot, (first, second) in enumerate(zip(records(earlier), records(later))):
            if second > first:
                found.append(f"slot {slot}: {later.name} has {second}, {earlier.name} only {first}")
    return found
