"""The small machine as a fixture; see machine.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from guest.machine import Guest
from harness.cleanup import Cleanup


@pytest.fixture(scope="module")
def guest(folder: Path, module_cleanup: Cleanup) -> Guest:
    """Booted once for a test file, with two empty disks: /dev/vda and /dev/vdb."""
    guest = Guest(folder / "guest", disks=["1G", "1G"], start=False)
    module_cleanup.add(guest.close)
    return guest.boot()


@pytest.fixture
def running_guest(guest: Guest) -> Guest:
    """The same, booted again if a test has brought it down."""
    return guest if guest.running() else guest.boot()
