"""What a rig has left behind on this machine: targets, sessions, loop devices, mounts, files, rows."""

from __future__ import annotations

import fcntl
import pathlib
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import catalogue, store

if TYPE_CHECKING:
    from harness.rig import Rig

LOOP_GET_STATUS64 = 0x4C05
# The catalogue's tables that are empty when there are no volumes; fences and terms are history.
COUNTS = " UNION ALL ".join(
    f"SELECT '{table}', count(*) FROM {table}"
    for table in ("volumes", "snapshots", "snapshot_groups", "grants")
)


def targets(rig: Rig) -> dict[str, int]:
    """{target name: number of sessions} as the rig's tgtd lists them.

    If tgtd dies meanwhile, its successor is asked.
    """
    while rig.tgtd() is not None:
        shown = subprocess.run(
            ["tgtadm", "-C", str(rig.control_port), "--lld", "iscsi", "--op", "show", "--mode", "target"],
            capture_output=True,
            text=True,
            timeout=20,
        )
        if shown.returncode == 0:
            return _sessions_by_target(shown.stdout)
    return {}


def _sessions_by_target(shown: str) -> dict[str, int]:
    found: dict[str, int] = {}
    name = ""
    for line in shown.split("\n"):
        if match := re.match(r"Target \d+: (\S+)", line):
            name = match[1]
            found[name] = 0
        elif line.strip().startswith("I_T nexus:"):
            found[name] += 1
    return found


def loops(rig: Rig) -> dict[str, str]:
    """{device: tag} of the loop devices of this rig's volumes.

    The tag is lo_file_name of LOOP_GET_STATUS64.
    """
    found = {}
    for path in pathlib.Path("/sys/block").glob("loop*/loop"):
        device, info = f"/dev/{path.parts[3]}", bytearray(232)
        try:
            with open(device, "rb") as opened:
                fcntl.ioctl(opened, LOOP_GET_STATUS64, info)
        except OSError:
            continue  # removed meanwhile
        tag = info[56:120].split(b"\0")[0].decode(errors="replace")
        if rig.array_name in tag:
            found[device] = tag
    return found


def mounts(below: Path) -> list[str]:
    """Mount points under a folder."""
    lines = pathlib.Path("/proc/self/mountinfo").read_text().split("\n")
    points = [line.split()[4] for line in lines if line]
    return [point for point in points if point.startswith(f"{below}/")]


def rows(rig: Rig) -> dict[str, int]:
    """{table: number of rows} of the catalogue's tables that have any; on Ceph, of what the array lists."""
    if store.ON_CEPH:
        return _listed(rig)
    if not catalogue.exists(rig.pool):
        return {}
    return {table: count for table, count in catalogue.query(rig.pool, COUNTS) if count}


def _listed(rig: Rig) -> dict[str, int]:
    """Nobody else may open the catalogue there."""
    client = rig.controller.client
    volumes = client.ListVolumes(wait=True, seconds=20).entries
    counts = {
        "volumes": len(volumes),
        "snapshots": len(client.ListSnapshots(wait=True, seconds=20).entries),
        "grants": sum(len(each.status.published_node_ids) for each in volumes),
    }
    return {what: count for what, count in counts.items() if count}


def files(rig: Rig) -> list[str]:
    """Files below the pool's folders, or images: volumes, snapshots, copies half made."""
    if store.ON_CEPH:
        return store.images(rig.array_name)
    return sorted(
        str(path.relative_to(rig.pool))
        for path in rig.pool.rglob("*")
        if path.is_file() and path.parent != rig.pool
    )  # the pool's own files are in its top folder


def remove_devices(rig: Rig) -> None:
    """Removes the mounts and loop devices of a failed test.

    The data path is gone, so nothing here waits for I/O.
    """
    lines = [line.split() for line in pathlib.Path("/proc/self/mountinfo").read_text().split("\n") if line]
    ours = [fields for fields in lines if fields[4].startswith(f"{rig.folder}/")]
    for fields in reversed(ours):
        subprocess.run(["umount", "--lazy", fields[4]], check=False, timeout=20)
    for device in loops(rig):
        subprocess.run(["losetup", "--detach", device], check=False, timeout=20)


class Leaks:
    """Remembers what exists when it is made, and finds what was added since then."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.before = self._look()

    def _look(self) -> dict[str, set[Any]]:
        rig = self.rig
        return {
            "targets": set(targets(rig)),
            "loop devices": set(loops(rig).items()),
            "mounts": set(mounts(rig.folder)),
            "rows": set(rows(rig).items()),
            "files": set(files(rig)),
        }

    def found(self) -> dict[str, list[str]]:
        """{kind: what is new}; empty when nothing leaked."""
        now = self._look()
        return {
            kind: sorted(map(str, now[kind] - before))
            for kind, before in self.before.items()
            if now[kind] - before
        }
