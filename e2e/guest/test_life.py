"""A whole Lunkeeper on Debian's kernel, where ext4 grows mounted (CAP_SYS_RESOURCE), and which may panic.

Beside it, the initiator alone against LIO, the target of that kernel.
"""

from __future__ import annotations

import os

import pytest

from guest.machine import Guest
from harness import places

pytestmark = pytest.mark.timeout(600)
MIB = 1 << 20
ROUNDS = int(os.environ.get("GROWTH_ROUNDS", "2"))  # 50 by name
WITH_LIO = """
for module in target_core_mod target_core_file iscsi_target_mod; do modprobe $module; done
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
export LK_LIO=1
"""


def test_a_mounted_ext4_grows_under_a_writer(running_guest: Guest) -> None:
    story = running_guest.story("grow-under-a-writer")
    assert story["before"] < 64 * MIB
    assert story["after"] > 200 * MIB
    assert story["pieces"] > 0


def test_a_poisoned_file_system_becomes_read_only_and_its_node_survives(running_guest: Guest) -> None:
    story = running_guest.story("meet-poison")
    assert story == {"file": "Structure needs cleaning", "new": "Read-only file system"}
    assert running_guest.running()


def test_the_initiator_works_with_lio(running_guest: Guest) -> None:
    program = places.BUILD / "devices/iscsi/other_targets_test"
    said = running_guest.run(f"{WITH_LIO}{program} '*'", seconds=200)
    assert "All tests passed" in said, said


@pytest.mark.timeout(600 + 120 * ROUNDS)
@pytest.mark.skipif("GROWTH_ROUNDS" not in os.environ, reason="by name: it takes minutes")
def test_a_node_killed_while_it_grows_a_mounted_volume_stages_it_the_next_time(running_guest: Guest) -> None:
    story = running_guest.story("grow-when-staged", seconds=400 + 120 * ROUNDS, GROWTH_ROUNDS=ROUNDS)
    print(story)
    assert story["unmounted"] == 0
    assert len(story["killed"]) >= ROUNDS
    assert any(story["killed"])
