"""An array with many grants: what tgtd's searches through its targets and accounts cost.

Grants a volume to a node in an array with 100 grants and in one with 3,000, and looks at both as failover
does, by turns, for a machine has slower and faster moments. Then, with 3,000 of which two nodes have 300
attached and write to all: fences 100 of them in one call, and kills every tgtd.
"""

import concurrent.futures
import os
import signal
import time

from agent.agents import AgentRig
from bench import tools
from bench.fence import writing
from bench.look import Looker
from harness.volume import MIB, Volume

FEW, MANY, ATTACHED, FENCED = 100, 3000, 300, 100
SAMPLES, AT_ONCE = 200, 8
GROWTH, FENCE_SECONDS, BACK_SECONDS = 1.25, 2, 30
NODES, TGTDS = 2, 16


class Filled:
    """A rig whose array gets more and more grants."""

    def __init__(self, rig, executor):
        self.rig, self.executor, self.volumes = rig, executor, []
        self.looker = Looker(rig)

    def fill(self, count):
        """Until there are so many grants, by turns of the nodes."""
        more = [
            Volume(self.rig, self.rig.nodes[number % NODES], f"grant-{number}", block=True, size=16 * MIB)
            for number in range(len(self.volumes), count)
        ]
        self.volumes += self.executor.map(lambda volume: volume.create().controller_publish(), more)

    def publish_ms(self, turn):
        """The time of one ControllerPublish."""
        volume = self.volumes[turn % len(self.volumes)]
        volume.controller_unpublish()
        started = time.monotonic()
        volume.controller_publish()
        return (time.monotonic() - started) * 1000

    def look_ms(self, turn):
        """The time of one look, while no grant changes."""
        return self.looker.look_ms()

    def look_after_change_ms(self, turn):
        """The time of one look that brings all grants, since one has changed."""
        self.publish_ms(turn)
        return self.looker.look_ms()


def compare(few, many):
    """Median times, measured by turns."""
    for look in (few.look_ms, many.look_ms):  # the first one brings all
        look(0)
    measures = {
        "publish_ms": ("ControllerPublish", GROWTH),
        "look_ms": ("a look", GROWTH),
        "look_after_change_ms": ("a look after a change", None),  # a longer list takes longer
    }
    for measure, (what, growth) in measures.items():
        times = [(getattr(few, measure)(turn), getattr(many, measure)(turn)) for turn in range(SAMPLES)]
        medians = [tools.median(of_one) for of_one in zip(*times, strict=True)]
        report(f"{what} with {FEW} grants", medians[0], "ms", "-", True)
        met = growth is None or medians[1] <= growth * medians[0]
        report(f"{what} with {MANY} grants", medians[1], "ms", f"{growth} x" if growth else "-", met)


def write_once(path):
    """Returns when the target has taken a block."""
    device = os.open(path, os.O_WRONLY | os.O_DSYNC)
    try:
        os.pwrite(device, bytes(4096), 0)
    finally:
        os.close(device)


def seconds_until_all_write(volumes):
    """How long it takes until each of them has taken a write."""
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(volumes)) as executor:
        list(executor.map(lambda volume: write_once(volume.target), volumes))
    return time.monotonic() - started


def report(what, value, unit, bar, met):
    """One line."""
    print(f"  {what:<64} {value:7.1f} {unit}{tools.verdict(bar, met)}", flush=True)


def faults(rig, attached):
    """A fence of many volumes, and the death of tgtd, under writers."""
    fenced = [volume for volume in attached if volume.node is rig.nodes[0]][:FENCED]
    others = [volume for volume in attached if volume not in fenced]
    with writing(attached):
        started = time.monotonic()
        rig.fence(rig.nodes[0].id, [volume.id for volume in fenced])
        took = time.monotonic() - started
    report(f"a fence of {FENCED} volumes", took, "s", FENCE_SECONDS, took <= FENCE_SECONDS)
    with writing(others):
        for number in range(TGTDS):
            os.kill(rig.tgtd(number), signal.SIGKILL)
        back = seconds_until_all_write(others)
    what = f"all {TGTDS} tgtds killed: until {len(others)} volumes write"
    report(what, back, "s", BACK_SECONDS, back <= BACK_SECONDS)


def run(folder, pool):
    """All of it, on two arrays."""
    print(f"\nAn array of {TGTDS} tgtds, {MANY} grants, {ATTACHED} attached and written to", flush=True)

    def rig(name):
        options = [f"--max-volumes-per-node={MANY}"]
        return AgentRig(folder / name, pool, nodes=NODES, tgtds=TGTDS, controller_options=options)

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as executor, rig("a") as small, rig("b") as large:
        few, many = Filled(small, executor), Filled(large, executor)
        few.fill(FEW)
        many.fill(MANY)
        compare(few, many)
        attached = many.volumes[:ATTACHED]
        list(executor.map(lambda volume: volume.stage().publish(), attached))
        faults(large, attached)
        list(executor.map(lambda volume: volume.down(with_controller=True), attached))
        large.unfence(large.nodes[0].id)
        volumes = few.volumes + many.volumes
        list(executor.map(lambda volume: volume.controller_unpublish().delete(), volumes))
