"""The loop devices of kubelet, released when a host loses its power.

Kubelet puts a loop device on every raw block volume, so that its device number is not used again. A machine
that loses its power loses these too. Here they belong to the machine of the tests, and would keep the volumes
of a dead host in use.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import struct
from collections.abc import Iterator

LOOP_CLR_FD, LOOP_GET_STATUS64 = 0x4C01, 0x4C05
LOOP_MAJOR = 7
INFO_BYTES = 232  # struct loop_info64: the backing file's device, inode, and own device number come first


def published_at(pid: int) -> set[int]:
    """The numbers of the loop devices that stand in this process's mounts, as raw block volumes do."""
    mounts = pathlib.Path(f"/proc/{pid}/mountinfo").read_text()
    return {int(number) for number in re.findall(r"^\S+ \S+ \S+ /loop(\d+) ", mounts, re.MULTILINE)}


def mounted_at(pid: int) -> set[int]:
    """The numbers of the loop devices whose file systems this process sees."""
    mounts = pathlib.Path(f"/proc/{pid}/mountinfo").read_text()
    return {int(number) for number in re.findall(rf"^\S+ \S+ {LOOP_MAJOR}:(\d+) ", mounts, re.MULTILINE)}


def release(numbers: set[int]) -> None:
    """Detaches the loop devices whose backing file is one of these loop devices."""
    for path in pathlib.Path("/sys/block").glob("loop*/loop"):
        with contextlib.suppress(OSError), opened(path.parent.name) as device:
            below = status(device)[2]
            if os.major(below) == LOOP_MAJOR and os.minor(below) in numbers:
                fcntl.ioctl(device, LOOP_CLR_FD)


def backing_devices(numbers: set[int]) -> set[int]:
    """The device numbers of the file systems on which the backing files of these loop devices are."""
    found = set()
    for number in numbers:
        with contextlib.suppress(OSError), opened(f"loop{number}") as device:
            found.add(status(device)[0])
    return found


@contextlib.contextmanager
def opened(name: str) -> Iterator[int]:
    """The device's descriptor."""
    device = os.open(f"/dev/{name}", os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield device
    finally:
        os.close(device)


def status(device: int) -> tuple[int, int, int]:
    """The backing file's device and inode, and its own device number if it is a device."""
    below, inode, own = struct.unpack_from("<QQQ", fcntl.ioctl(device, LOOP_GET_STATUS64, bytes(INFO_BYTES)))
    return below, inode, own
