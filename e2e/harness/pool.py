"""The place of an array's volumes: a plain folder, or a small XFS with reflinks on a loop device."""

import subprocess
from pathlib import Path
from typing import Any

from harness.cleanup import Cleanup


def run(*argv: object, **options: Any) -> str:
    """Runs a command and returns its output. Fails with the output of a command that fails."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [str(arg) for arg in argv], capture_output=True, text=True, timeout=120, **options
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(map(str, argv))}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def plain_pool(folder: Path, cleanup: Cleanup) -> Path:
    path = Path(folder) / "pool"
    path.mkdir(parents=True)
    return path


def xfs_pool(folder: Path, cleanup: Cleanup, size: str = "4G") -> Path:
    """A file system with reflinks. Its image is sparse: it needs only the space of what is written."""
    image, path = Path(folder) / "pool.img", Path(folder) / "pool"
    path.mkdir(parents=True)
    run("truncate", "-s", size, image)
    run("mkfs.xfs", "-q", "-m", "reflink=1", image)
    device = run("losetup", "--find", "--show", image).strip()
    cleanup.add(image.unlink)
    cleanup.add(run, "losetup", "--detach", device)
    run("mount", device, path)
    cleanup.add(run, "umount", path)
    return path
