"""Fencing a node off all its volumes in one call, which is the storage's part of an evacuation.

Measures until the array has proof that no command of the node is left: once with quiet sessions, and once
while the node writes to every volume.
"""

import concurrent.futures
import contextlib
import subprocess
import time

from bench import tools
from harness.rig import Rig
from harness.volume import MIB, Volume

VOLUMES, ROUNDS, AT_ONCE = 200, 3, 8
BAR_SECONDS = 1.0


@contextlib.contextmanager
def writing(volumes):
    """Writes a little to each volume all the time, by one process that ends when the volumes are gone."""
    devices = [f"--filename={':'.join(str(volume.target) for volume in volumes)}"]
    with subprocess.Popen(
        [
            "fio",
            "--name=load",
            *devices,
            "--ioengine=io_uring",
            "--direct=1",
            "--rw=randwrite",
            "--bs=4096",
            f"--iodepth={len(volumes)}",
            "--runtime=60",
            "--time_based",
            "--output=/dev/null",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as load:
        time.sleep(1)
        try:
            yield
        finally:
            load.terminate()


def one_fence(rig, volumes):
    started = time.monotonic()
    rig.fence(rig.nodes[0].id, [volume.id for volume in volumes])
    return time.monotonic() - started


def measured(rig, volumes, executor, load):
    times = []
    for _ in range(ROUNDS):
        list(executor.map(lambda volume: volume.controller_publish().stage().publish(), volumes))
        with load(volumes):
            times.append(one_fence(rig, volumes))
        list(executor.map(lambda volume: volume.down(with_controller=True), volumes))
        rig.unfence(rig.nodes[0].id)
    return times


def report(what, times):
    worst = max(times)
    print(
        f"  {what:<36} p50 {tools.median(times) * 1000:5.0f} ms, worst {worst * 1000:5.0f} ms"
        f"{tools.verdict(f'{BAR_SECONDS * 1000:.0f}', worst <= BAR_SECONDS)}",
        flush=True,
    )


def run(folder, pool):
    print(f"\nFence of a node with {VOLUMES} volumes in use, one call, {ROUNDS} rounds each", flush=True)
    with (
        Rig(folder / "fence", pool, split=True) as rig,
        concurrent.futures.ThreadPoolExecutor(AT_ONCE) as executor,
    ):
        made = [
            Volume(rig, rig.nodes[0], f"fence-{number}", block=True, size=16 * MIB)
            for number in range(VOLUMES)
        ]
        volumes = list(executor.map(Volume.create, made))
        report("their sessions quiet", measured(rig, volumes, executor, lambda _: contextlib.nullcontext()))
        report("while all of them are written to", measured(rig, volumes, executor, writing))
        list(executor.map(Volume.delete, volumes))
