"""The Debian package of the built program: its content, and that it works."""

import os
import re
import shutil
import subprocess

import pytest

from cluster import images, roots
from harness.places import BUILD, LUNKEEPER, ROOT

DEBIAN = roots.root_for(LUNKEEPER)


@pytest.fixture(scope="module")
def package(folder):
    made = subprocess.run(
        ["cpack", "--config", BUILD / "CPackConfig.cmake", "-B", folder],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    (found,) = folder.glob(f"lunkeeper_*_{DEBIAN.architecture}.deb")
    return found


@pytest.fixture(scope="module")
def unpacked(package, folder):
    subprocess.run(["dpkg-deb", "--extract", package, folder / "root"], check=True, timeout=60)
    return folder / "root"


def field(package, name):
    return subprocess.run(
        ["dpkg-deb", "--field", package, name], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_it_has_what_a_storage_host_needs(unpacked):
    files = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert files == {
        "usr/bin/lunkeeper",
        "usr/lib/systemd/system/lunkeeper-array@.service",
        "usr/lib/systemd/system/lunkeeper-join@.service",
        "usr/lib/systemd/system/lunkeeper-join@.timer",
        "usr/share/doc/lunkeeper/copyright",
        "usr/share/doc/lunkeeper/examples/array.env",
        "usr/share/doc/lunkeeper/examples/pool.conf",
    }


def test_it_brings_what_the_program_is_linked_with_and_what_it_runs(package):
    depends = field(package, "Depends")
    for wanted in ("libgrpc++1.51", "libsqlite3-0", "tgt", "xfsprogs", "e2fsprogs"):
        assert wanted in depends


def test_the_program_runs_and_knows_every_option_of_its_unit(unpacked):
    program = unpacked / "usr/bin/lunkeeper"
    known = subprocess.run(
        [*DEBIAN.emulator, program, "array", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    example = (unpacked / "usr/share/doc/lunkeeper/examples/array.env").read_text()
    unit = (unpacked / "usr/lib/systemd/system/lunkeeper-array@.service").read_text()
    options = re.findall(r"(--[a-z-]+)=", example + unit)
    assert "--pool" in options and not [option for option in options if option not in known]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_takes_the_unit(unpacked):
    """Under its own root, with the usual units and the drop-in; warnings count as failures."""
    drop_in = unpacked / "etc/systemd/system/lunkeeper-array@rack1.service.d"
    drop_in.mkdir(parents=True)
    shutil.copy(unpacked / "usr/share/doc/lunkeeper/examples/pool.conf", drop_in)
    shutil.copytree(
        "/usr/lib/systemd/system", unpacked / "usr/lib/systemd/system", symlinks=True, dirs_exist_ok=True
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", f"--root={unpacked}", "lunkeeper-array@rack1.service"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )
    ours = [line for line in done.stderr.split("\n") if "lunkeeper" in line]
    assert not ours


def test_it_is_installed_and_removed(package, folder):
    """Into a root of its own. Its scripts work without systemd, and only its own files come and go."""
    root = folder / "installed"
    (root / "var/lib/dpkg").mkdir(parents=True)
    forced = ["--force-depends", "--force-script-chrootless", "--force-architecture"]
    dpkg = ["dpkg", f"--root={root}", *forced, "--log=/dev/null"]
    for verb in (["--install", package], ["--purge", "lunkeeper"]):
        done = subprocess.run([*dpkg, *verb], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (root / "usr/bin/lunkeeper").exists() == (verb[0] == "--install")


BASE = {"libc6", "libgcc-s1", "libstdc++6"}  # in every image of Debian
BROUGHT = {"libgrpc29": "libgrpc++1.51", "libspdlog1.10-fmt9": "libspdlog1.10"}  # by, or under the name of


def test_the_container_image_has_what_the_package_asks_for(package):
    """So does the image that the test cluster makes of this machine's files."""
    installed = set(
        (ROOT / "Containerfile").read_text().partition("apt-get install")[2].partition("&&")[0].split()
    )
    needed = {
        BROUGHT.get(name, name)
        for name in re.findall(r"([a-z0-9.+-]+)(?: \([^)]*\))?(?:, |$)", field(package, "Depends"))
    }
    assert needed - BASE <= installed
    for tool in images.LUNKEEPER_TOOLS:
        listed = DEBIAN.dpkg("dpkg", "--search", f"*/sbin/{tool}")
        owners = {line.partition(":")[0] for line in listed.split("\n")}
        assert owners & installed, f"{tool} is of {owners}"
