"""Where the files of an image are from: this machine, or the folder of Debian's packages for arm64.

A root has Debian's folders, and dpkg's database of them. The programs in it may be for another processor, so
nothing here runs them (`packaging/arm64/sysroot.py` makes such a folder).
"""

import dataclasses
import os
import re
import subprocess
from pathlib import Path

from harness.places import ROOT

TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")  # where programs look for them
EMULATOR = "/usr/bin/qemu-aarch64-static"
MACHINES = {"Advanced Micro Devices X86-64": "amd64", "AArch64": "arm64"}  # as readelf calls them


@dataclasses.dataclass(frozen=True)
class Root:
    architecture: str
    folder: Path

    @property
    def emulator(self) -> list[str]:
        """What its programs are run with on this machine."""
        return [] if self == HOST else [EMULATOR, "-L", str(self.folder)]

    def find(self, program: str) -> Path:
        for folder in ("usr/sbin", "usr/bin", "sbin", "bin"):
            if (found := self.folder / folder / program).exists():
                return found
        raise FileNotFoundError(f"{program}: not in {self.folder}; ./dev installs what an image needs")

    def libraries(self, program: Path) -> dict[str, Path]:
        """What the program is linked with, and what those are linked with: where it belongs, and its file."""
        found: dict[str, Path] = {}
        ahead = [program]
        while ahead:
            for place in self._needed(ahead.pop()):
                if place not in found:
                    found[place] = self.folder / place.lstrip("/")
                    ahead.append(found[place])
        return found

    def _needed(self, file: Path) -> list[str]:
        told = _readelf("--program-headers", "--dynamic", file)
        loaders = re.findall(r"program interpreter: (/[^\]]+)\]", told)
        names = re.findall(r"\(NEEDED\)\s.*\[(.+)\]", told)
        return loaders + [self._library(file, name) for name in names]

    def _library(self, file: Path, name: str) -> str:
        triplet = TRIPLETS[self.architecture]
        for place in (*LOADERS, f"/lib/{triplet}/{name}", f"/usr/lib/{triplet}/{name}"):
            if place.endswith(f"/{name}") and (self.folder / place.lstrip("/")).exists():
                return place
        raise FileNotFoundError(f"{file} needs {name}, which is not in {self.folder}")

    def dpkg(self, command: str, *arguments: str) -> str:
        """What `dpkg` or `dpkg-query` says of this root; it may have nothing to say of some arguments."""
        where = f"--admindir={self.folder / 'var/lib/dpkg'}"
        done = subprocess.run([command, where, *arguments], capture_output=True, text=True, timeout=60)
        return done.stdout

    def owners(self, paths: list[Path]) -> dict[str, list[Path]]:
        """{package: its files among these}. Each must be of a package."""
        # Libraries are found in /lib, which is /usr/lib; the package has one of the two.
        forms = {
            path: {str(path), f"/usr{path}", str(path).removeprefix("/usr"), os.path.realpath(path)}
            for path in paths
        }
        told = self.dpkg("dpkg", "--search", *sorted(set().union(*forms.values())))
        package_of = {
            path: package for package, path in re.findall(r"^([^:,\s]+)[^/]*: (/.*)$", told, re.MULTILINE)
        }
        found: dict[str, list[Path]] = {}
        for path, known in forms.items():
            packages = {package_of[form] for form in known if form in package_of}
            if not packages:
                raise SystemExit(f"{path}: of no Debian package, so nobody can say what it is")
            found.setdefault(min(packages), []).append(path)
        return found


def _readelf(*arguments: str | Path) -> str:
    """Nothing for what is no ELF file, and never a translation."""
    done = subprocess.run(
        ["readelf", "--wide", *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        env={**os.environ, "LC_ALL": "C"},
    )
    return done.stdout


HOST = Root("amd64", Path("/"))
ARM64 = Root("arm64", Path(os.path.realpath(ROOT / ".cache/arm64")))
BY_ARCHITECTURE = {root.architecture: root for root in (HOST, ARM64)}


def root_for(program: Path) -> Root:
    machine = re.search(r"Machine: +(.+)", _readelf("--file-header", program))
    if machine is None:
        raise ValueError(f"{program} is no program")
    return BY_ARCHITECTURE[MACHINES[machine[1]]]
