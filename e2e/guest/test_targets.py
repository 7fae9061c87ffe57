"""The initiator against LIO, the target of Debian's own kernel: other_targets_test.cc, run in the guest."""

from __future__ import annotations

import pytest

from guest.machine import Guest
from harness import places

pytestmark = pytest.mark.timeout(300)

MODULES = "for module in target_core_mod target_core_file iscsi_target_mod; do modprobe $module; done"
CONFIGURATION = "mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config"


def test_the_initiator_works_with_lio(running_guest: Guest) -> None:
    running_guest.run(f"{MODULES} && {CONFIGURATION}")
    program = places.BUILD / "devices/iscsi/other_targets_test"
    said = running_guest.run(f"LK_LIO=1 {program} '*' 2>&1", seconds=200)
    assert "All tests passed" in said, said
