"""A host's own part of this machine's control groups, in every hierarchy that is mounted.

Without it every host's kubelet would look at the containers of all the others, and at those of hosts that are off: three
seconds for each at its start.
"""

import contextlib
import ctypes
import os
import pathlib
import subprocess

CLONE_NEWCGROUP = 0x02000000


def hierarchies():
    """[(mount point, kind, options)]."""
    found = []
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, options, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            own = [option for option in options.split(",") if option not in ("rw", "ro", "relatime", "nosuid", "nodev", "noexec")]
            found.append((point, kind, ",".join(own)))
    return found


def move_into(name):
    """This process and those it will start; they see nothing above it any more. In a mount namespace of one's own."""
    mounted = hierarchies()
    for point, _, _ in mounted:
        group = pathlib.Path(point) / name
        group.mkdir(exist_ok=True)
        for needed in ("cpuset.cpus", "cpuset.mems"):
            if (group / needed).exists() and pathlib.Path(point, needed).exists():
                (group / needed).write_text(pathlib.Path(point, needed).read_text())
        (group / "cgroup.procs").write_text("0")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWCGROUP) != 0:
        raise OSError(ctypes.get_errno(), "unshare the control groups")
    for point, kind, options in mounted:
        subprocess.run(["umount", point], check=True, timeout=20)  # the same file system twice at one place is refused
        subprocess.run(["mount", "-t", kind, *(["-o", options] if options else []), name, point], check=True, timeout=20)


def remove(prefix):
    """All groups whose names begin so, with what is in them; those with processes stay."""
    for point, _, _ in hierarchies():
        for group in pathlib.Path(point).glob(f"{prefix}*"):
            for folder, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
