"""Mounts of other tests, in a mount namespace of one's own."""

import tempfile
from pathlib import Path


def drop_others(keep: str | Path = "/") -> str:
    """A shell command that unmounts the file systems of other tests, except the one that holds `keep`.

    A new mount namespace has a copy of each mount, which would keep the devices in use.
    """
    chosen = f"""index($5, "{tempfile.gettempdir()}/") == 1 && index("{keep}/", $5 "/") != 1 {{print $5}}"""
    return f"awk '{chosen}' /proc/self/mountinfo | tac | xargs --no-run-if-empty --max-args=1 umount --lazy"
