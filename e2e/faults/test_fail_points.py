"""SIGKILL at every fail point, in every step of a volume's life: of the process that meets it, and of each of the others it
depends on. The repeated call succeeds, nothing leaks, no acknowledged write is lost."""

import concurrent.futures
import contextlib
import os
import queue
import traceback

import pytest

from faults.journey import Journey
from harness import pool
from harness.cleanup import Cleanup, wait_until
from harness.faults import FailPoint, Survivor, fail_points
from harness.leaks import Leaks
from harness.rig import Rig

# How many rigs at once: most of a journey is waiting.
RIGS = 3
# Points in the plugin's own work, where the other processes are killed. The data path's are met by itself.
PLUGIN_AREAS = ("array.", "controller.", "node.", "filesystem.")
# Not on a journey's way; the test named meets it.
ELSEWHERE = {"array.restore.accepted": "test_restore.py"}


class Rigs:
    """One worker's rigs, one for each kind of pool, made when first needed and made anew after trouble."""

    def __init__(self, folder, cleanup):
        self.folder, self.cleanup = folder, cleanup
        self.pools, self.rigs, self.made = {}, {}, 0

    def get(self, copies):
        if copies not in self.pools:
            make = pool.plain_pool if copies else pool.xfs_pool
            self.pools[copies] = make(self.folder / ("plain" if copies else "xfs"), self.cleanup)
        if copies not in self.rigs:
            self.made += 1
            self.rigs[copies] = Rig(self.folder / f"rig-{self.made}", self.pools[copies], start=False)
            self.cleanup.add(self.rigs[copies].close)
        return self.rigs[copies]

    def drop(self, copies):
        """The logs of one that is not to be used again."""
        rig = self.rigs.pop(copies)
        rig.close()
        return rig.logs()


def run_journeys(folder, points, victim):
    """One worker: journeys until there are no more points. {point: what went wrong}, {point: how often it was hit}."""
    problems, hits = {}, {}
    with Cleanup() as cleanup:
        rigs = Rigs(folder, cleanup)
        while True:
            try:
                point = points.get_nowait()
            except queue.Empty:
                return problems, hits
            copies = ".copy." in point
            try:
                hits[point] = run_one(rigs.get(copies), point, victim, copies)
            except Exception:  # noqa: every point gets its turn, and all problems are shown together
                problems[point] = traceback.format_exc(limit=-6) + rigs.drop(copies)


def run_one(rig, point, victim, copies):
    """How often the point was hit, with journeys of both kinds if need be."""
    hits = 0
    for kind in ("xfs", "block", "ext4"):
        fail_point = FailPoint(rig, point, victim)
        survivor = Survivor(rig, fail_point)
        survivor.restart()
        leaks = Leaks(rig)
        name = "".join(letter if letter.isalnum() else "-" for letter in point)
        Journey(survivor, name, kind=kind, copies=copies).go()
        wait_until(lambda: not leaks.found(), 5, lambda: f"nothing leaks: {leaks.found()}")
        hits += fail_point.hits
        if hits:
            return hits
    return hits


def run_all(folder, points, victim):
    waiting = queue.SimpleQueue()
    for point in points:
        waiting.put(point)
    with concurrent.futures.ThreadPoolExecutor(RIGS) as executor:
        workers = [executor.submit(run_journeys, folder / f"{victim}-{number}", waiting, victim) for number in range(RIGS)]
        try:
            results = [worker.result() for worker in workers]
        finally:  # interrupted: each worker ends after the journey it is on, and cleans up
            while not waiting.empty():
                with contextlib.suppress(queue.Empty):
                    waiting.get_nowait()
    problems = {point: text for result, _ in results for point, text in result.items()}
    hits = {point: count for _, result in results for point, count in result.items()}
    print(f"{victim}: {len(hits)} fail points survived, hit {sum(hits.values())} times")
    return problems, [point for point, count in hits.items() if count == 0]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", ["self", "tgtd", "worker", "holder"])
def test_killed_anywhere_the_repeated_call_succeeds(folder, victim):
    only = os.environ.get("FAIL_POINTS", "")  # for a look at a few of them
    points = [point for point in fail_points() if only in point]
    points = [point for point in points if victim == "self" or point.startswith(PLUGIN_AREAS)]
    assert points, "the program was built without fail points"
    problems, missed = run_all(folder, points, victim)
    assert not problems, f"{len(problems)} of {len(points)}: {sorted(problems)}\n" + "\n".join(
        f"==== {point}\n{text}" for point, text in sorted(problems.items()))
    if victim == "self":
        assert not set(missed) - set(ELSEWHERE), f"never reached: {missed}"
