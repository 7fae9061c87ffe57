"""SIGKILL at every fail point, in every step of a volume's life.

The victim is the process that reaches the point, or one that it depends on. The repeated call succeeds,
nothing leaks, and no acknowledged write is lost.
"""

import concurrent.futures
import contextlib
import os
import queue
import traceback

import pytest

from faults.journey import Journey
from harness import pool, store
from harness.cleanup import Cleanup, wait_until
from harness.faults import VICTIMS, FailPoint, Survivor, fail_points
from harness.leaks import Leaks
from harness.rig import Rig

# How many rigs at once: most of a journey is waiting.
RIGS = 3
# Points of the plugin, at which the other processes are killed too. The data path only kills itself.
PLUGIN_AREAS = ("array.", "controller.", "node.", "filesystem.")
# Points that no journey reaches, with the test that does.
ELSEWHERE = {
    "array.restore.accepted": "test_restore.py",
    "array.restore.log_removed": "test_backup.py",
    **{
        f"array.backup.{step}": "test_backup.py"
        for step in (
            "begun",
            "catalogue_copied",
            "catalogue_listed",
            "gone_listed",
            "image_listed",
            "image_written",
            "rows_forgotten",
        )
    },
    **{
        f"array.handover.{step}": "ceph/test_handover.py"
        for step in ("begun", "closed", "stopped", "released")
    },
    **{
        f"array.takeover.{step}": "ceph/test_takeover_steps.py"
        for step in ("taken", "shut_out", "named", "catalogue_open")
    },
    **{
        f"handover.{step}": "devices/datapath/datapath_handover_test.cc"
        for step in (
            "predecessor.sent",
            "predecessor.stopped",
            "predecessor.given",
            "successor.received",
            "successor.given",
            "successor.started",
        )
    },
    "worker.request.taken": "test_poison.py",
    **{
        f"duplicates.{step}": "devices/datapath/datapath_duplicates_test.cc"
        for step in ("edition.begun", "edition.written", "store.given", "successor.asked")
    },
    "array.unshare.piece": "devices/array/tgt/quota_test.cc",
    "array.migrate.copied": "catalogue_schema_test.cc",
    "array.migrate.changed": "catalogue_schema_test.cc",
    "array.migrate.committed": "catalogue_schema_test.cc",
}

# An image in Ceph that could not be removed at once is tried again each 30 s.
REMOVED_SECONDS = 90 if store.ON_CEPH else 5


class Rigs:
    """A worker's rigs, one for each kind of pool, made on demand and replaced after a failure."""

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
        """Closes a rig that has failed; returns its logs."""
        rig = self.rigs.pop(copies)
        rig.close()
        return rig.logs()


def run_journeys(folder, points, victim):
    """One worker: journeys until there are no more points.

    Returns {point: problem} and {point: number of hits}.
    """
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
            except Exception:  # every point gets its turn, and all problems are shown together
                problems[point] = traceback.format_exc(limit=-6) + rigs.drop(copies)


def run_one(rig, point, victim, copies):
    """The number of hits of the point. Journeys of other kinds follow until there is one."""
    hits = 0
    for kind in ("xfs", "block", "ext4"):
        fail_point = FailPoint(rig, point, victim)
        survivor = Survivor(rig, fail_point)
        survivor.restart()
        leaks = Leaks(rig)
        name = "".join(letter if letter.isalnum() else "-" for letter in point)
        Journey(survivor, name, kind=kind, copies=copies).go()
        wait_until(lambda: not leaks.found(), REMOVED_SECONDS, lambda: f"nothing leaks: {leaks.found()}")
        hits += fail_point.hits
        if hits:
            return hits
    return hits


def run_all(folder, points, victim):
    waiting = queue.SimpleQueue()
    for point in points:
        waiting.put(point)
    with concurrent.futures.ThreadPoolExecutor(RIGS) as executor:
        workers = [
            executor.submit(run_journeys, folder / f"{victim}-{number}", waiting, victim)
            for number in range(RIGS)
        ]
        try:
            results = [worker.result() for worker in workers]
        finally:  # interrupted: each worker finishes its journey and cleans up
            while not waiting.empty():
                with contextlib.suppress(queue.Empty):
                    waiting.get_nowait()
    problems = {point: text for result, _ in results for point, text in result.items()}
    hits = {point: count for _, result in results for point, count in result.items()}
    print(f"{victim}: {len(hits)} fail points survived, hit {sum(hits.values())} times")
    return problems, [point for point, count in hits.items() if count == 0]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", VICTIMS)
def test_killed_anywhere_the_repeated_call_succeeds(folder, victim):
    only = os.environ.get("FAIL_POINTS", "")  # to run a few of them
    points = [point for point in fail_points() if only in point and point not in ELSEWHERE]
    points = [point for point in points if victim == "self" or point.startswith(PLUGIN_AREAS)]
    if store.ON_CEPH:  # nothing is copied there
        points = [point for point in points if ".copy." not in point]
    assert points, "the program was built without fail points"
    problems, missed = run_all(folder, points, victim)
    assert not problems, f"{len(problems)} of {len(points)}: {sorted(problems)}\n" + "\n".join(
        f"==== {point}\n{text}" for point, text in sorted(problems.items())
    )
    if victim == "self":  # some are of files alone
        assert store.ON_CEPH or not missed, f"never reached: {missed}"
