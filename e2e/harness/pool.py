"""Where an array keeps its volumes: a plain folder, or a small XFS file system on a loop device (reflinks, a size of its own)."""

import pathlib
import subprocess


def run(*argv, **options):
    """Runs a command; its output. Fails with what it said."""
    done = subprocess.run([str(arg) for arg in argv], capture_output=True, text=True, timeout=120, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, argv))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def plain_pool(folder, cleanup):
    path = pathlib.Path(folder) / "pool"
    path.mkdir(parents=True)
    return path


def xfs_pool(folder, cleanup, size="4G"):
    """Reflinks work. Sparse: uses on disk what is written."""
    image, path = pathlib.Path(folder) / "pool.img", pathlib.Path(folder) / "pool"
    path.mkdir(parents=True)
    run("truncate", "-s", size, image)
    run("mkfs.xfs", "-q", "-m", "reflink=1", image)
    device = run("losetup", "--find", "--show", image).strip()
    cleanup.add(image.unlink)
    cleanup.add(run, "losetup", "--detach", device)
    run("mount", device, path)
    cleanup.add(run, "umount", path)
    return path
