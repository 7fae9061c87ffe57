"""`./dev bench takeover [--volumes N…]`: the next gateway takes an array on Ceph with many volumes.

All volumes have a data path on this machine, and stand still. Then nothing of the old gateway answers any
more, neither its agent nor its tgtd, as if its power had gone, and one write goes to each volume at once.
Prints when they were acknowledged, and what the next gateway did meanwhile; before that, how long the agent
of the old one needed for an ordinary restart.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import datetime
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from bench.tools import percentile, verdict
from harness.ceph import Ceph
from harness.cleanup import Cleanup, interrupt_on_sigterm, wait_until
from harness.gateways import Gateway, Machine
from harness.pool import xfs_pool
from harness.processes import free_port, kill_pid
from harness.rig import Rig
from harness.store import options_of
from harness.volume import MIB, Volume

VOLUMES = (10, 50, 100)
NODES, AT_ONCE = 2, 4
BAR_SECONDS = 20  # of 100 volumes, until the last one has its first write
# What the next gateway's log says, in the order of a takeover, and what is over then.
STEPS = {
    "this gateway takes the array": "the old gateway's silence",
    "the gateway before is shut out": "the blocklist and the map",
    "the catalogue is open": "the catalogue",
    "the targets are back": "locks, images, targets and accounts",
    "tgtd serves": "the portal",
    "the images are tidied": "images tidied",
}


@contextlib.contextmanager
def gateways(folder: pathlib.Path, pool: pathlib.Path) -> Iterator[tuple[Rig, Gateway]]:
    """Two of an array, of which the rig's own serves."""
    with Ceph(folder / "ceph") as ceph, contextlib.ExitStack() as ends:
        rig = Rig(
            folder / "rig", pool, nodes=NODES, split=True, array_options=options_of(ceph), start=False
        )
        ends.callback(rig.close)
        second = Gateway(rig, options_of(ceph), f"127.0.0.1:{free_port()}")
        ends.callback(Machine(second, second.tgt_socket).die)
        rig.controller.argv.append(f"--peer-portal={second.portal}")
        second.argv.append(f"--peer-portal={rig.portal}")
        rig.start()
        yield rig, second


def attached(rig: Rig, count: int) -> list[Volume]:
    """So many, each written to once."""
    volumes = [
        Volume(rig, rig.nodes[number % NODES], f"v{number}", block=True, size=16 * MIB)
        for number in range(count)
    ]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as executor:
        list(executor.map(lambda volume: volume.up(with_controller=True), volumes))
        list(executor.map(write_once, volumes))
    return volumes


def write_once(volume: Volume) -> float:
    """When the target had taken a block."""
    device = os.open(volume.target, os.O_WRONLY | os.O_DSYNC)
    try:
        os.pwrite(device, os.urandom(4096), 0)
    finally:
        os.close(device)
    return time.time()


def restart_seconds(rig: Rig) -> float:
    """From the start of the old gateway's agent, whose tgtd goes on, until it serves calls."""
    rig.controller.stop()
    began = time.monotonic()
    rig.start()
    return time.monotonic() - began


def step_times(log: pathlib.Path, began: float) -> dict[str, float]:
    """Seconds from then, of each step that is in the log."""
    times = {}
    for line in log.read_text().splitlines():
        if found := re.match(r"(\S+Z) \S+ array: (.*)", line):
            said = next((step for step in STEPS if found[2].startswith(step)), None)
            if said:
                times[said] = datetime.datetime.fromisoformat(found[1]).timestamp() - began
    return times


def report(count: int, wrote: Sequence[float], steps: dict[str, float]) -> None:
    """One takeover."""
    met = verdict(f"{BAR_SECONDS} s", max(wrote) <= BAR_SECONDS) if count >= max(VOLUMES) else ""
    print(
        f"  {count} volumes write: first {min(wrote):.1f}, p50 {percentile(wrote, 0.5):.1f}, "
        f"last {max(wrote):.1f} s{met}"
    )
    before = 0.0
    for step, what in STEPS.items():
        if step in steps:
            print(f"    {what:<40} {steps[step] - before:6.2f} s, until {steps[step]:6.2f}")
            before = steps[step]
    sys.stdout.flush()


def take_over(folder: pathlib.Path, pool: pathlib.Path, count: int) -> None:
    """Measures and reports it, with so many volumes."""
    with gateways(folder, pool) as (rig, second):
        volumes = attached(rig, count)
        print(f"\n  {count} volumes: an ordinary restart of the agent {restart_seconds(rig):.1f} s")
        second.start()
        wait_until(second.stands_by, 60, "the second one stands by")
        began = time.time()
        frozen = Machine(rig.controller, rig.tgt_socket(0)).freeze()
        try:
            with concurrent.futures.ThreadPoolExecutor(count) as executor:
                wrote = [at - began for at in executor.map(write_once, volumes)]
            wait_until(second.ready, 120, lambda: f"the second one serves\n{second.tail()}")
        finally:
            for pid in frozen:
                kill_pid(pid)
        report(count, wrote, step_times(second.log, began))


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="./dev bench takeover", description=__doc__)
    parser.add_argument("--volumes", type=int, nargs="+", default=VOLUMES, metavar="N")
    given = parser.parse_args()
    interrupt_on_sigterm()
    print("The gateway of an array on Ceph falls silent, under one write to each volume", flush=True)
    with Cleanup() as cleanup:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lk-bench-"))
        cleanup.add(shutil.rmtree, folder, True)
        pool = xfs_pool(folder / "disk", cleanup)
        for count in given.volumes:
            take_over(folder / str(count), pool, count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
