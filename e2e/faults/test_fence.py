"""Once Fence has returned, no write of the fenced node reaches the medium."""

import concurrent.futures
import hashlib
import os
import random
import time

import pytest

from harness import slow
from harness.checker import Zombie
from harness.volume import MIB, Volume

ROUNDS = int(os.environ.get("FENCE_ROUNDS", "200"))  # half of them with a slow array
# Nodes that are fenced at the same time.
ZOMBIES = 5
SLOW_MS = 300
# Commands of each session of a zombie. Slow ones queue for tgtd's few threads, and the fence waits for all.
DEPTH = {False: 64, True: 8}
# A write in flight would land within this time.
WATCHED = {False: 0.15, True: 1.2 * SLOW_MS / 1000}


def medium(rig, volume):
    """The content now: of a file, in the page cache, which tgtd writes to."""
    return hashlib.blake2b(rig.read_medium(volume)).digest()


def one_round(rig, volume, zombie_id, seed, *, slowed, end):
    """Grants, writes, calls `end` meanwhile, and reads the medium twice: whether it stayed the same."""
    client = rig.controller.client
    context = dict(
        client.ControllerPublishVolume(
            volume_id=volume.id, node_id=zombie_id, volume_capability=volume.capability
        ).publish_context
    )
    zombie = Zombie(rig.folder, f"{zombie_id}-{seed}", context, depth=DEPTH[slowed]).start()
    try:
        zombie.wait_for("acked", 1)
        time.sleep(random.Random(seed).uniform(0, 0.1))
        end(zombie)
        before = medium(rig, volume)
        time.sleep(WATCHED[slowed])
        return before == medium(rig, volume)
    finally:
        zombie.kill()
        rig.unfence(zombie_id)
        client.ControllerUnpublishVolume(volume_id=volume.id, node_id=zombie_id)


def fence_one(rig, volume, zombie_id, seed, slowed):
    def fence(zombie):
        rig.fence(zombie_id)
        zombie.wait_for("refused", 1)  # it still tries

    return one_round(rig, volume, zombie_id, seed, slowed=slowed, end=fence)


@pytest.mark.sanitizer
@pytest.mark.parametrize("slowed", [False, pytest.param(True, marks=pytest.mark.files)], ids=["fast", "slow"])
def test_after_a_fence_no_block_changes(folder, xfs_pool, slowed):
    with slow.rig(folder, f"fence-{slowed}", xfs_pool) as rig:
        slow.set_delay(folder, SLOW_MS if slowed else 0)
        volumes = [
            Volume(rig, rig.nodes[0], f"zombie-{number}", block=True, size=4 * MIB).create()
            for number in range(ZOMBIES)
        ]
        held = []
        with concurrent.futures.ThreadPoolExecutor(ZOMBIES) as executor:
            for start in range(0, ROUNDS // 2, ZOMBIES):
                rounds = [
                    executor.submit(
                        fence_one, rig, volume, f"zombie-{number}.{number:016x}", start + number, slowed
                    )
                    for number, volume in enumerate(volumes)
                ]
                held += [future.result() for future in rounds]
        slow.set_delay(folder, 0)
        print(f"{sum(held)} of {len(held)} fences held")
        assert held and all(held)
        for volume in volumes:
            volume.delete()


@pytest.mark.files
def test_the_watch_sees_writes_that_land_late(folder, xfs_pool):
    """Without a fence the last writes land although the writer and its connection are gone."""
    with slow.rig(folder, "control", xfs_pool) as rig:
        slow.set_delay(folder, SLOW_MS)
        volume = Volume(rig, rig.nodes[0], "control", block=True, size=4 * MIB).create()
        rounds = [
            one_round(rig, volume, "zombie-0.0000000000000000", seed, slowed=True, end=Zombie.kill)
            for seed in range(3)
        ]
        slow.set_delay(folder, 0)
        assert not all(rounds)
        volume.delete()
