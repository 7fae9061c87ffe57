"""How long the list of changed blocks takes: 100 GiB, 1,000 places written between two snapshots.

The volume has some 20,000 written places before, so both snapshots' files have as many extents. What is read
of their data shows in the page cache, which has none of it at first.
"""

import json
import os
import pathlib
import subprocess
import time
from collections.abc import Callable

from bench import tools
from harness.backup import Ranges, allocated, changed
from harness.rig import Rig
from harness.volume import MIB, Volume

SIZE = 100 * 1024 * MIB
WRITTEN, CHANGED, ROUNDS = 20_000, 1_000, 5
BAR_SECONDS = 2.0


def write(volume: Volume, places: int, seed: int) -> None:
    subprocess.run(
        [
            "fio",
            "--name=write",
            f"--filename={volume.target}",
            "--ioengine=io_uring",
            "--direct=1",
            "--rw=randwrite",
            "--bs=4096",
            "--iodepth=32",
            f"--number_ios={places}",
            "--norandommap",
            f"--randseed={seed}",
            "--end_fsync=1",
            "--output=/dev/null",
        ],
        check=True,
        timeout=600,
    )


def resident_bytes(files: list[pathlib.Path]) -> int:
    """What the page cache has of them."""
    told = subprocess.run(
        ["fincore", "--json", "--bytes", *files], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    return sum(int(file["res"]) for file in json.loads(told)["fincore"])


def forget(files: list[pathlib.Path]) -> None:
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def timed(name: str, ask: Callable[[], Ranges], bar: float | None) -> None:
    """Prints how long the list takes, and what it has."""
    seconds: list[float] = []
    ranges: Ranges = []
    for _ in range(ROUNDS):
        begun = time.monotonic()
        ranges = ask()
        seconds.append(time.monotonic() - begun)
    p50 = tools.median(seconds)
    told = tools.verdict(f"{bar:.0f} s", max(seconds) <= bar) if bar else ""
    print(
        f"  {name}: p50 {p50 * 1000:5.0f} ms, worst {max(seconds) * 1000:5.0f} ms{told}; "
        f"{len(ranges)} ranges, {sum(length for _, length in ranges) / MIB:.1f} MiB",
        flush=True,
    )


def run(folder: pathlib.Path, pool: pathlib.Path) -> None:
    gib = SIZE // MIB // 1024
    print(f"\nChanged blocks of {gib} GiB, {CHANGED} places changed, {ROUNDS} rounds", flush=True)
    with Rig(folder / "blocks", pool) as rig:
        client = rig.controller.client
        volume = Volume(rig, rig.nodes[0], "blocks", block=True, size=SIZE).up()
        write(volume, WRITTEN, 1)
        old = volume.snapshot("old")
        write(volume, CHANGED, 2)
        now = volume.snapshot("now")
        files = [rig.pool / "snapshots" / snapshot for snapshot in (old, now)]
        forget(files)
        before = resident_bytes(files)
        timed("changed  ", lambda: changed(client, old, now), BAR_SECONDS)
        timed("allocated", lambda: allocated(client, now), None)
        read = resident_bytes(files) - before
        print(f"  data read: {read} bytes{tools.verdict('none', read <= 0)}", flush=True)
        for snapshot in (old, now):
            client.DeleteSnapshot(snapshot_id=snapshot)
        volume.down().delete()
