"""Debian's packages for arm64, in a folder: what an arm64 build is compiled with, linked with and run with.

    python3 packaging/arm64/sysroot.py FOLDER                                              (./dev does so)

apt resolves and downloads them, with a state of its own: the machine's own packages do not change. They are
unpacked and not installed, for their scripts are programs for arm64. So FOLDER gets the part of dpkg's
database that says which package has which file; it names files by where they are, below FOLDER. Nothing
happens if FOLDER is there already; delete it to have newer packages.
"""

import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

ARCHITECTURE = "arm64"
PACKAGES = (
    "libc6-dev libstdc++-12-dev libgrpc++-dev libprotobuf-dev libabsl-dev libspdlog-dev libfmt-dev catch2 libisal-dev"
    " libiscsi-dev libmount-dev libblkid-dev libsqlite3-dev libcli11-dev prometheus-cpp-dev libboost1.81-dev"
    " libboost-context1.81-dev nlohmann-json3-dev libssl-dev tgt xfsprogs e2fsprogs busybox-static"
).split()
MERGED = ("bin", "lib", "sbin")  # they are links to usr/…, as on every Debian 12
DATABASE = "var/lib/dpkg"


def run(*command, **more):
    return subprocess.run(list(map(str, command)), check=True, timeout=900, **more)


def download(work):
    """All that PACKAGES need, as .deb files."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True)
    (work / "status").touch()
    options = {
        "Dir::State": work / "state",
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
        "APT::Architecture": ARCHITECTURE,
        "APT::Architectures": ARCHITECTURE,
        "APT::Sandbox::User": "root",  # the folder is ours alone
        "Acquire::Languages": "none",
        "APT::Update::Post-Invoke-Success": "true",  # and not the machine's own hooks
    }
    apt = ["apt-get", *(f"-o{name}={value}" for name, value in options.items())]
    run(*apt, "update")
    run(*apt, "install", "--download-only", "--yes", "--no-install-recommends", *PACKAGES)
    return sorted((work / "cache/archives").glob("*.deb"))


def unpack(package, root):
    """Returns the names of its files and links."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as data:
        run("tar", "--keep-directory-symlink", "--no-same-owner", "-xC", root, stdin=data.stdout)
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as data:
        with tarfile.open(fileobj=data.stdout, mode="r|") as files:
            return [each.name.removeprefix("./") for each in files if not each.isdir()]


def relink(root):
    """Absolute links are meant below the root."""
    for folder, folders, files in os.walk(root):
        for link in (pathlib.Path(folder, name) for name in folders + files):
            if link.is_symlink() and (target := os.readlink(link)).startswith("/"):
                link.unlink()
                link.symlink_to(os.path.relpath(root / target.lstrip("/"), link.parent))


def place(root, name):
    """Where a package's file is, by the one name that has no link in it."""
    return root / "usr" / name if name.startswith(tuple(f"{merged}/" for merged in MERGED)) else root / name


def record(package, names, work, home, root):
    """Into dpkg's database, as an installed package."""
    database = home / DATABASE
    control = work / "control" / package.stem
    control.parent.mkdir(exist_ok=True)
    run("dpkg-deb", "--control", package, control)
    text = (control / "control").read_text()
    (name,) = re.findall(r"^Package: (\S+)$", text, re.MULTILINE)
    if re.search(r"^Multi-Arch: same$", text, re.MULTILINE):
        name += f":{ARCHITECTURE}"
    with open(database / "status", "a", encoding="utf-8") as status:
        status.write(text.replace("\n", "\nStatus: install ok installed\n", 1).rstrip("\n") + "\n\n")
    (database / f"info/{name}.list").write_text("".join(f"{place(root, each)}\n" for each in names))
    for kind in ("symbols", "shlibs"):  # for dpkg-shlibdeps
        if (control / kind).exists():
            shutil.copyfile(control / kind, database / f"info/{name}.{kind}")


def make(root, work):
    """In another folder first: what is there is whole."""
    shutil.rmtree(work, ignore_errors=True)
    home = work / "root"
    for merged in MERGED:
        (home / "usr" / merged).mkdir(parents=True)
        (home / merged).symlink_to(f"usr/{merged}")
    (home / DATABASE / "info").mkdir(parents=True)
    (home / DATABASE / "info/format").write_text("1\n")
    (home / DATABASE / "arch").write_text(f"amd64\n{ARCHITECTURE}\n")
    packages = download(work)
    for package in packages:
        record(package, unpack(package, home), work, home, root)
    relink(home)
    (home / "packages").write_text(" ".join(PACKAGES) + "\n")
    shutil.rmtree(root, ignore_errors=True)
    home.rename(root)
    shutil.rmtree(work)
    print(f"{len(packages)} packages for {ARCHITECTURE} in {root}")


def main():
    root = pathlib.Path(os.path.realpath(sys.argv[1]))
    root.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{root}.lock", "w") as lock:  # other clones share the folder
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = root / "packages"
        if not known.exists() or known.read_text().split() != PACKAGES:
            make(root, root.with_suffix(".new"))


if __name__ == "__main__":
    main()
