"""A host's own part of this machine's control groups, in every hierarchy that is mounted.

Without it the kubelet of every host would examine the containers of all other hosts, also after these were
switched off. Each would cost three seconds when the kubelet starts.
"""

import contextlib
import ctypes
import os
import pathlib
import subprocess

CLONE_NEWCGROUP = 0x02000000


def hierarchies() -> list[tuple[str, str, str]]:
    """[(mount point, kind, options)]."""
    found = []
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, options, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            own = [
                option
                for option in options.split(",")
                if option not in ("rw", "ro", "relatime", "nosuid", "nodev", "noexec")
            ]
            found.append((point, kind, ",".join(own)))
    return found


def move_into(name: str) -> None:
    """Moves this process and its future children into a group; they see nothing above it any more.

    Needs a mount namespace of its own.
    """
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
        subprocess.run(
            ["umount", point], check=True, timeout=20
        )  # the same file system twice at one place is refused
        subprocess.run(
            ["mount", "-t", kind, *(["-o", options] if options else []), name, point], check=True, timeout=20
        )


def remove(prefix: str) -> None:
    """All groups whose names begin so, with what is in them; those with processes stay."""
    for point, _, _ in hierarchies():
        for group in pathlib.Path(point).glob(f"{prefix}*"):
            for folder, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
