"""From CreateVolume to mounted, one at a time and 32 at a time, with few and with many volumes in the array."""

import concurrent.futures
import itertools
import time

from bench import tools
from harness.rig import Rig
from harness.volume import Volume

SAMPLES = 32
EXISTING = (0, 500)
GROWTH = 1.1  # the most that a mount may take of its time in an empty array
STEPS = ("create", "controller_publish", "stage", "publish")


def timed_up(rig, name):
    """Milliseconds of each step, and of all."""
    volume, times = Volume(rig, rig.nodes[0], name), {}
    for step in STEPS:
        started = time.monotonic()
        getattr(volume, step)()
        times[step] = (time.monotonic() - started) * 1000
    times["all"] = sum(times.values())
    return volume, times


def sample(rig, at_once, names):
    with concurrent.futures.ThreadPoolExecutor(at_once) as executor:
        done = list(executor.map(lambda _: timed_up(rig, next(names)), range(SAMPLES)))
        list(executor.map(lambda item: item[0].down(with_controller=True).delete(), done))
    return [times for _, times in done]


def report(existing, at_once, samples, before):
    """Prints the line, beside the p50 `before` with fewer volumes if there is one; gives the p50."""
    cells = [f"{step} {tools.median([times[step] for times in samples]):.0f}" for step in STEPS]
    totals = [times["all"] for times in samples]
    p50 = tools.median(totals)
    growth = f"; {p50 / before:.2f} of the first{tools.verdict(GROWTH, p50 <= GROWTH * before)}" if before else ""
    print(f"{existing:5} volumes, {at_once:2} at a time: p50 {p50:5.0f} ms, "
          f"p99 {tools.percentile(totals, 0.99):5.0f} ms   (p50 by step: {', '.join(cells)}){growth}", flush=True)
    return p50


def run(folder, pool):
    print(f"\nCreateVolume to mounted (XFS), {SAMPLES} samples each", flush=True)
    names = (f"bench-{number}" for number in itertools.count())
    with Rig(folder / "rpcs", pool, split=True, array_options=["--max-volumes-per-node=1000"]) as rig:
        existing, first = [], {}
        for wanted in EXISTING:
            with concurrent.futures.ThreadPoolExecutor(8) as executor:
                more = [Volume(rig, rig.nodes[0], f"existing-{number}") for number in range(len(existing), wanted)]
                existing += executor.map(Volume.create, more)
                list(executor.map(Volume.controller_publish, more))
            for at_once in (1, 32):
                p50 = report(wanted, at_once, sample(rig, at_once, names), first.get(at_once))
                first.setdefault(at_once, p50)
        with concurrent.futures.ThreadPoolExecutor(8) as executor:
            list(executor.map(lambda volume: volume.controller_unpublish().delete(), existing))
