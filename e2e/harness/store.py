"""Where the arrays of rigs have their volumes: in files or, with STORE=rbd, in one small Ceph for all.

Tests with the marker `files` are about files, or about what an array on Ceph refuses, and are left out then.
Those with the marker `store` are the part of the others that CI runs so.
"""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import tempfile
from pathlib import Path

from harness.ceph import Ceph

ON_CEPH = os.environ.get("STORE", "files") == "rbd"


@functools.cache
def ceph() -> Ceph:
    """It ends with the tests."""
    folder = Path(tempfile.mkdtemp(prefix="lk-ceph-"))
    made = Ceph(folder / "ceph")
    atexit.register(folder.rmdir)
    atexit.register(made.close)
    return made


def options_of(ceph: Ceph) -> list[str]:
    return [f"--store=rbd:{ceph.POOL}", f"--ceph-conf={ceph.conf}"]


def options() -> list[str]:
    """An array's, beside those of its pool."""
    return options_of(ceph()) if ON_CEPH else []


def images(array: str) -> list[str]:
    """In Ceph, of this array."""
    return [name for name in ceph().rbd("ls", Ceph.POOL).split() if name.startswith(f"lunkeeper.{array}.")]


def read_image(volume: str) -> bytes:
    (name,) = [name for name in ceph().rbd("ls", Ceph.POOL).split() if name.endswith(f".{volume}")]
    argv = ["rbd", "--conf", str(ceph().conf), "export", "--no-progress", f"{Ceph.POOL}/{name}", "-"]
    return subprocess.run(argv, check=True, capture_output=True, timeout=60).stdout
