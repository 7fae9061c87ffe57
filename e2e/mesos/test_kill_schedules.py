"""A framework's disks under kills: at each point of the way once, and as seeds say.

KILL_SCHEDULES: how many seeds for each protocol. KILL_SEED: this seed alone, for a failure to be seen again.
"""

import os
import random
import secrets

import pytest

from mesos.faults import EveryPoint, Schedule
from mesos.life import Life
from mesos.machine import MesosRig
from mesos.protocols import BOTH

SCHEDULES = int(os.environ.get("KILL_SCHEDULES", "5"))
SEEDS = (
    [int(os.environ["KILL_SEED"])]
    if "KILL_SEED" in os.environ
    else [secrets.randbelow(1 << 32) for _ in range(SCHEDULES)]
)
MOVES = 8  # of a framework, between a schedule's beginning and end

protocols = pytest.mark.parametrize("protocol", BOTH, ids=lambda protocol: f"csi-{protocol.number}")


def run(folder, pool, protocol, make_faults, live):
    """`folder`: its name is what a framework chooses its moves by."""
    with MesosRig(folder, pool, [protocol]) as rig:
        faults = make_faults(rig)
        life = Life(rig, folder / "work", faults, random.Random(folder.name))
        try:
            live(life)
            life.end()
        except BaseException:
            print(f"{folder.name}: {faults.events}\n{rig.logs()}")
            raise
        print(f"{folder.name}: {faults.hits} faults survived: {', '.join(faults.events)}")


def make_disks(life):
    before = life.make_beforehand("xfs", 320 << 20)
    for name, profile, volume_id in (
        ("mounted", "ext4", None),
        ("raw", "raw", None),
        ("made before", "xfs", before),
    ):
        life.create(name, profile, volume_id)
        life.write(name)


def live_by_chance(life):
    """Disks are used, moved down and up again, and keep what was written."""
    make_disks(life)
    for _ in range(MOVES):
        name = life.chance.choice(sorted(life.disks))
        life.chance.choice([life.write, life.verify, life.take_down, life.poll])(name)
    for name in life.disks:
        life.verify(name)


def live_in_order(life):
    """Each call is made, upwards and downwards."""
    make_disks(life)
    for name in life.disks:
        life.take_down(name)
        life.verify(name)


@pytest.mark.timeout(600)
@protocols
@pytest.mark.parametrize("seed", SEEDS)
def test_no_disk_is_lost_or_left(folder, xfs_pool, protocol, seed):
    run(
        folder / f"{protocol.number}-{seed}",
        xfs_pool,
        protocol,
        lambda rig: Schedule(rig, f"{protocol.number}-{seed}"),
        live_by_chance,
    )


@pytest.mark.timeout(600)
@protocols
@pytest.mark.parametrize("kind", ["provider", "plugin", "both", "tgtd", "reboot"])
def test_killed_once_at_every_point(folder, xfs_pool, protocol, kind):
    run(
        folder / f"{protocol.number}-{kind}",
        xfs_pool,
        protocol,
        lambda rig: EveryPoint(rig, kind),
        live_in_order,
    )
