"""What a mount does with a harmful superblock: `errors=` in the file system, and in the mount options.

The groundwork for what Lunkeeper mounts by default: the kernel that may panic is the guest's.
"""

from __future__ import annotations

import pytest

from guest.machine import Guest, GuestEnded

pytestmark = pytest.mark.timeout(600)

# An ext4 with an error that listing its folder meets: the entry leads to an inode that was wiped. `{policy}`
# is what its superblock tells the kernel to do then.
POISON = """
umount /mnt 2>/dev/null
mke2fs -q -F -t ext4 -e {policy} /dev/vda
mount /dev/vda /mnt && mkdir /mnt/folder && touch /mnt/folder/file && umount /mnt
debugfs -w -R 'clri /folder/file' /dev/vda
"""
MEET_IT = "ls -l /mnt/folder; sync"


def poison(guest: Guest, policy: str) -> Guest:
    if not guest.running():
        guest.boot()
    guest.run(POISON.format(policy=policy))
    return guest


def is_read_only(guest: Guest) -> bool:
    return guest.try_run("touch /mnt/new").code != 0


def test_the_mount_option_remount_ro_wins_over_panic(guest: Guest) -> None:
    poison(guest, "panic").run("mount -o errors=remount-ro /dev/vda /mnt")
    guest.try_run(MEET_IT)
    assert guest.running()
    assert is_read_only(guest)


def test_a_file_system_that_says_continue_stays_writable_after_an_error(guest: Guest) -> None:
    poison(guest, "continue").run("mount /dev/vda /mnt")
    guest.try_run(MEET_IT)
    assert not is_read_only(guest)


def test_a_file_system_that_says_panic_takes_the_kernel_down(guest: Guest) -> None:
    poison(guest, "panic").run("mount /dev/vda /mnt")
    with pytest.raises(GuestEnded):
        guest.try_run(MEET_IT)
    guest.wait_for_end(20)
