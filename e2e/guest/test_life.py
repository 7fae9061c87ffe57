"""A whole Lunkeeper on Debian's kernel, where ext4 grows mounted (CAP_SYS_RESOURCE)."""

from __future__ import annotations

import pytest

from guest.machine import Guest

pytestmark = pytest.mark.timeout(600)
MIB = 1 << 20


def test_a_mounted_ext4_grows_under_a_writer(running_guest: Guest) -> None:
    story = running_guest.story("grow-under-a-writer")
    assert story["before"] < 64 * MIB
    assert story["after"] > 200 * MIB
    assert story["pieces"] > 0
