"""The small machine itself: what tests rely on, and what it must never do to the machine it runs on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from guest.machine import Guest, GuestEnded
from harness.processes import alive

pytestmark = pytest.mark.timeout(300)


def test_it_has_another_kernel_and_all_of_root_s_rights(running_guest: Guest) -> None:
    assert running_guest.run("uname -r").strip() != os.uname().release
    bounding_set = int(running_guest.run("awk '/CapBnd/ {print $2}' /proc/self/status"), 16)
    assert bounding_set & 1 << 24, "CAP_SYS_RESOURCE is missing, which is what it is for"


def test_a_command_s_exit_code_output_and_deadline_come_back(running_guest: Guest) -> None:
    result = running_guest.try_run("echo out; echo err >&2; exit 7")
    assert (result.code, result.output) == (7, "out\nerr\n")
    assert running_guest.try_run("sleep 100", seconds=1).code == 124
    assert running_guest.run("echo still there") == "still there\n"


def test_it_sees_this_machine_s_files_and_cannot_change_them(running_guest: Guest, folder: Path) -> None:
    path = folder / "note"
    path.write_text("as it was")
    assert running_guest.run(f"cat {path}; echo changed >{path}; cat {path}") == "as it waschanged\n"
    assert path.read_text() == "as it was"


def test_its_disks_outlive_a_power_cut_and_nothing_else_does(guest: Guest) -> None:
    if not guest.running():
        guest.boot()
    guest.run("mke2fs -q /dev/vdb && mount /dev/vdb /mnt && echo kept >/mnt/kept && sync && touch /root/lost")
    pid = guest.pid
    guest.kill()
    assert not alive(pid)
    guest.boot()
    assert guest.run("mount /dev/vdb /mnt && cat /mnt/kept && umount /mnt") == "kept\n"
    assert guest.try_run("test -e /root/lost").code == 1


def test_a_panic_is_its_own_end_only(guest: Guest) -> None:
    if not guest.running():
        guest.boot()
    with pytest.raises(GuestEnded):
        guest.run("echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger")
    guest.wait_for_end(20)
