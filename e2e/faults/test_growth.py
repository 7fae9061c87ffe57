"""Growth of an unmounted ext4, as here, where the kernel lets nobody grow a mounted one (CAP_SYS_RESOURCE).

The guest's tests are for mounted growth.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from harness import slow
from harness.csi import code_of
from harness.growth import MORE_ROUNDS, check_grown, kill_while_they_grow, measure_stage, small_volume
from harness.leaks import Leaks
from harness.rig import Rig

# How often the node is killed; 50 by name.
ROUNDS = int(os.environ.get("GROWTH_ROUNDS", "3"))


@pytest.fixture(scope="module")
def rig(folder: Path, xfs_pool: Path) -> Iterator[Rig]:
    with Rig(folder / "growth", xfs_pool) as rig:
        leaks = Leaks(rig)
        yield rig
        assert not leaks.found()


@pytest.mark.files  # of which tgtd's writes are slowed
def test_a_growth_longer_than_its_call_goes_on_and_the_repeated_call_finds_it(
    folder: Path, xfs_pool: Path
) -> None:
    with slow.rig(folder, "slow", xfs_pool) as rig:
        volume = small_volume(rig, "slow")
        slow.set_delay(folder, 700)
        code, text = code_of(volume.stage, seconds=8)
        assert code == "ABORTED" and "still at work" in text, f"{code}: {text}"
        slow.set_delay(folder, 0)
        volume.stage()
        check_grown(rig, volume)
        volume.delete()


@pytest.mark.timeout(300 + 120 * (ROUNDS + MORE_ROUNDS))
def test_a_node_killed_while_a_volume_grows_stages_it_the_next_time(rig: Rig) -> None:
    longest = measure_stage(rig)
    killed = Counter(chain.from_iterable(kill_while_they_grow(rig, ROUNDS, longest)))
    print(f"{ROUNDS} rounds or more within {longest:.1f} s, killed at work: {dict(killed)}")
