"""Debian's own kernel for the guest, unpacked into .cache/guest and never installed on this machine.

    python3 -m guest.kernel      # from e2e/, as `./dev test guest` does

A kernel that is there is kept, also when Debian has a newer one. Delete .cache/guest to fetch that.
"""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache/guest"
METAPACKAGE = "linux-image-amd64"
BUSYBOX = pathlib.Path("/bin/busybox")
SECONDS = 300


@dataclasses.dataclass(frozen=True)
class Kernel:
    release: str  # "6.1.0-56-amd64"
    image: pathlib.Path  # vmlinuz
    modules: pathlib.Path  # lib/modules/RELEASE, with modules.dep


def kernel() -> Kernel:
    """The one in the cache; fetched first if there is none."""
    found = _cached()
    if found is None:
        _fetch()
        found = _cached()
    assert found is not None, f"{CACHE} has no kernel after it was fetched"
    return found


def _cached() -> Kernel | None:
    for modules in sorted(CACHE.glob("*/lib/modules/*"), reverse=True):
        image = modules.parents[2] / "boot" / f"vmlinuz-{modules.name}"
        if image.exists():
            return Kernel(modules.name, image, modules)
    return None


def _fetch() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=".new-") as folder:
        new = pathlib.Path(folder)
        try:
            _download(new)
        except subprocess.CalledProcessError:  # the lists name a version that Debian has replaced
            _run("apt-get", "update")
            _download(new)
        package = next(new.glob("*.deb"))
        unpacked = new / "unpacked"
        _run("dpkg-deb", "--extract", package, unpacked)
        release = next((unpacked / "lib/modules").iterdir()).name
        _run(BUSYBOX, "depmod", "-b", unpacked, release)
        # In one step: a folder with that name is whole. Another run may have been quicker.
        if not (CACHE / release).exists():
            unpacked.rename(CACHE / release)


def _download(folder: pathlib.Path) -> None:
    depends = _run("apt-cache", "depends", METAPACKAGE).split("\n")
    package = next(line.split(":")[1].strip() for line in depends if "Depends:" in line)
    _run("apt-get", "download", package, cwd=folder)


def _run(*argv: object, cwd: pathlib.Path | None = None) -> str:
    command = [str(arg) for arg in argv]
    done = subprocess.run(command, cwd=cwd, text=True, timeout=SECONDS, check=True, stdout=subprocess.PIPE)
    return done.stdout


if __name__ == "__main__":
    print(f"the guest's kernel: {kernel().release}", file=sys.stderr)
