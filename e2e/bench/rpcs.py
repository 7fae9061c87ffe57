"""From CreateVolume to mounted, one at a time and 32 at a time, in an empty array and in a full one.

Both arrays run side by side and take turns, since a disk may be slower in the next minute.
"""

import concurrent.futures
import contextlib
import functools
import itertools
import pathlib
import time
from collections.abc import Iterator, Sequence

from bench import tools
from bench.comparison import Figure, Sample, Step
from harness.rig import Rig
from harness.volume import Volume

SAMPLES = 32
ROUNDS = 2  # of so many samples, on each array
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
        done = list(executor.map(lambda _: timed_up(rig, next(names)), range(at_once)))
        list(executor.map(lambda item: item[0].down(with_controller=True).delete(), done))
    return [times for _, times in done]


def take_turns(rigs, at_once, names):
    """The samples of each rig. The rigs take turns after each batch."""
    samples = [[] for _ in rigs]
    for turn in range(ROUNDS * SAMPLES // at_once):
        for number in range(len(rigs)):
            which = (number + turn) % len(rigs)
            samples[which] += sample(rigs[which], at_once, names)
    return samples


def report(existing, at_once, samples, before):
    """Prints the line, beside the p50 `before` with fewer volumes if there is one; gives the p50."""
    cells = [f"{step} {tools.median([times[step] for times in samples]):.0f}" for step in STEPS]
    totals = [times["all"] for times in samples]
    p50 = tools.median(totals)
    growth = (
        f"; {p50 / before:.2f} of the first{tools.verdict(GROWTH, p50 <= GROWTH * before)}" if before else ""
    )
    print(
        f"{existing:5} volumes, {at_once:2} at a time: p50 {p50:5.0f} ms, "
        f"p99 {tools.percentile(totals, 0.99):5.0f} ms   (p50 by step: {', '.join(cells)}){growth}",
        flush=True,
    )
    return p50


@contextlib.contextmanager
def filled(folder, pool, existing):
    """A rig whose array has so many volumes, each granted to its node."""
    with (
        Rig(folder, pool, split=True, array_options=["--max-volumes-per-node=1000"]) as rig,
        concurrent.futures.ThreadPoolExecutor(8) as executor,
    ):
        volumes = [Volume(rig, rig.nodes[0], f"existing-{number}") for number in range(existing)]
        list(executor.map(lambda volume: volume.create().controller_publish(), volumes))
        yield rig
        list(executor.map(lambda volume: volume.controller_unpublish().delete(), volumes))


def run(folder, pool):
    print(f"\nCreateVolume to mounted (XFS), {ROUNDS * SAMPLES} samples each", flush=True)
    names = (f"bench-{number}" for number in itertools.count())
    with contextlib.ExitStack() as stack:
        rigs = [
            stack.enter_context(filled(folder / f"rpcs-{existing}", pool, existing)) for existing in EXISTING
        ]
        for at_once in (1, SAMPLES):
            first = None
            for existing, samples in zip(EXISTING, take_turns(rigs, at_once, names)):
                p50 = report(existing, at_once, samples, first)
                first = first or p50


def mount_sample(rig, at_once, names) -> Sample:
    """The median time of a mount, for a comparison."""
    (samples,) = take_turns([rig], at_once, names)
    figure = Figure(f"to mounted, {at_once} at a time", "ms", higher_is_better=False)
    return {figure: tools.median([times["all"] for times in samples])}


@contextlib.contextmanager
def compared_steps(
    folder: pathlib.Path, pool: pathlib.Path, binary: pathlib.Path
) -> Iterator[Sequence[Step]]:
    """Mounts in an empty array, with processes of this binary: one at a time, and many."""
    names = (f"bench-{number}" for number in itertools.count())
    with Rig(folder, pool, split=True, binary=binary) as rig:
        yield [functools.partial(mount_sample, rig, at_once, names) for at_once in (1, SAMPLES)]
