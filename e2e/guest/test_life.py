"""A whole Lunkeeper on Debian's kernel, where ext4 grows mounted (CAP_SYS_RESOURCE), and which may panic."""

from __future__ import annotations

import os

import pytest

from guest.machine import Guest

pytestmark = pytest.mark.timeout(600)
MIB = 1 << 20
ROUNDS = int(os.environ.get("GROWTH_ROUNDS", "2"))  # 50 by name


def test_a_mounted_ext4_grows_under_a_writer(running_guest: Guest) -> None:
    story = running_guest.story("grow-under-a-writer")
    assert story["before"] < 64 * MIB
    assert story["after"] > 200 * MIB
    assert story["pieces"] > 0


def test_a_poisoned_file_system_becomes_read_only_and_its_node_survives(running_guest: Guest) -> None:
    story = running_guest.story("meet-poison")
    assert story == {"file": "Structure needs cleaning", "new": "Read-only file system"}
    assert running_guest.running()


@pytest.mark.timeout(600 + 120 * ROUNDS)
@pytest.mark.skipif("GROWTH_ROUNDS" not in os.environ, reason="by name: it takes minutes")
def test_a_node_killed_while_it_grows_a_mounted_volume_stages_it_the_next_time(running_guest: Guest) -> None:
    story = running_guest.story("grow-when-staged", seconds=400 + 120 * ROUNDS, GROWTH_ROUNDS=ROUNDS)
    print(story)
    assert story["unmounted"] == 0
    assert len(story["killed"]) == ROUNDS
