"""What ./dev release makes, of the built program."""

import contextlib
import gzip
import io
import json
import re
import subprocess
import sys
import tarfile

import grpc
import pytest

from cluster import release as releases
from cluster import roots
from cluster.release import BILL, CHART, DEB, DEBIAN, IMAGE, VERSION
from harness import csi
from harness.cleanup import wait_until
from harness.places import ROOT
from harness.processes import Daemon, free_port
from harness.rig import free_control_port

EMULATE = ROOT / "packaging/arm64/emulate.py"


@pytest.fixture(scope="module")
def key(folder):
    path = folder / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True)
    return path


@pytest.fixture(scope="module")
def release(folder, key):
    return releases.make(folder / "release", f"--key={key}")


def test_it_has_everything(release):
    assert {path.name for path in release.iterdir()} == {
        CHART,
        IMAGE,
        DEB,
        "kubectl-lunkeeper",
        BILL,
        "RELEASE_NOTES.md",
        "SHA256SUMS",
        "SHA256SUMS.sig",
        "release.pub",
    }


@pytest.mark.parametrize("beside", [(), ("SHA256SUMS",), ("SHA256SUMS", "RELEASE_NOTES.md")])
def test_a_folder_with_something_else_is_left_as_it_is(folder, beside):
    home = folder / f"home-{len(beside)}"
    home.mkdir()
    names = {"precious", *beside}
    for name in names:
        (home / name).write_text("mine")
    refused = releases.run(home)
    assert refused.returncode == 1 and "no release" in refused.stderr, refused
    assert {path.name for path in home.iterdir()} == names


def test_a_second_one_is_the_same_byte_for_byte(release, folder):
    """This time without a key, so it is not signed."""
    again = releases.make(folder / "again")
    names = {path.name for path in again.iterdir()}
    assert names == {path.name for path in release.iterdir()} - {"SHA256SUMS.sig", "release.pub"}
    for name in names:
        assert (again / name).read_bytes() == (release / name).read_bytes(), name


def test_checksums_and_signature_are_right_and_notice_a_change(release, folder):
    def check(sums):
        verify = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", release / "release.pub", "-rawin"]
        files = ["-in", sums, "-sigfile", release / "SHA256SUMS.sig"]
        return subprocess.run([*verify, *files], capture_output=True, timeout=20).returncode == 0

    assert check(release / "SHA256SUMS")
    changed = folder / "changed"
    changed.write_text((release / "SHA256SUMS").read_text().replace("0", "1", 1))
    assert not check(changed)
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=release, check=True, timeout=60)
    listed = re.findall(r"^\w{64}  (\S+)$", (release / "SHA256SUMS").read_text(), re.MULTILINE)
    assert set(listed) == {path.name for path in release.iterdir()} - {
        "SHA256SUMS",
        "SHA256SUMS.sig",
        "release.pub",
    }


@pytest.fixture(scope="module")
def layer(release, folder):
    """The image's only layer, unpacked."""
    with tarfile.open(release / IMAGE) as image:
        (manifest,) = json.load(image.extractfile("manifest.json"))
        config = json.load(image.extractfile(manifest["Config"]))
        assert config["architecture"] == DEBIAN.architecture
        assert manifest["RepoTags"] == [f"ghcr.io/lunkeeper/lunkeeper:{VERSION}"]
        with tarfile.open(fileobj=image.extractfile(manifest["Layers"][0])) as files:
            files.extractall(folder / "layer")
    return folder / "layer"


# Programs for another processor are run by an emulator, and so is what they start.
IN_LAYER = [] if DEBIAN == roots.HOST else [sys.executable, EMULATE, DEBIAN.folder]


def test_the_programs_in_the_image_run_with_nothing_else_there(layer):
    for command in (["/usr/bin/lunkeeper", "version"], ["/usr/sbin/mke2fs", "-V"], ["/usr/sbin/tgtd", "-V"]):
        told = subprocess.run(
            [*IN_LAYER, "chroot", layer, *command], capture_output=True, text=True, timeout=60
        )
        assert told.returncode == 0, f"{command}: {told.stderr}"
        assert command[1] != "version" or told.stdout.strip() == VERSION


# The kernel ends all processes in it with the first, and this one with the test.
START = """
mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" /usr/bin/lunkeeper "$@"
"""
ALONE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", START]


@pytest.fixture
def controller(layer):
    """One with an array of its own, so with the image's tgtd. Emulated, it takes a while to start."""
    for folder in ("proc", "dev", "var/lib/pool"):
        (layer / folder).mkdir(exist_ok=True)
    options = ["--mode=controller", "--endpoint=unix:///run/csi.sock", "--state-dir=/var/lib/state"]
    array = ["--cluster=c", "--array-name=image", "--pool=/var/lib/pool", f"--portal=127.0.0.1:{free_port()}"]
    server = Daemon(
        "controller",
        [*IN_LAYER, *ALONE, layer, "serve", *options, *array, f"--tgt-control-port={free_control_port()}"],
        log=layer.parent / "controller.log",
        dies_with_us=True,
    )
    server.start()
    yield server
    server.kill()


def test_the_image_starts_and_serves(layer, controller):
    with contextlib.closing(csi.Client(layer / "run/csi.sock")) as client:

        def ready():
            assert controller.running(), controller.tail()
            with contextlib.suppress(grpc.RpcError):
                return client.Probe(seconds=5).ready.value

        try:
            wait_until(ready, 120, "the controller in the image is ready")
        except TimeoutError as error:
            raise AssertionError(controller.tail()) from error
        assert client.GetPluginInfo().vendor_version == VERSION
        volume = client.CreateVolume(
            name="v",
            capacity_range={"required_bytes": 64 << 20},
            volume_capabilities=[{"mount": {}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}}],
        ).volume
        assert [each.volume.volume_id for each in client.ListVolumes().entries] == [volume.volume_id]
        client.DeleteVolume(volume_id=volume.volume_id)


def test_the_image_brings_the_licences_of_what_is_in_it(layer):
    notices = {path.parent.name for path in layer.glob("usr/share/doc/*/copyright")}
    assert {"lunkeeper", "tgt", "e2fsprogs", "libc6", "busybox-static"} <= notices


def test_image_and_package_have_the_same_program(release, layer, folder):
    subprocess.run(["dpkg-deb", "--extract", release / DEB, folder / "deb"], check=True, timeout=60)
    assert (folder / "deb/usr/bin/lunkeeper").read_bytes() == (layer / "usr/bin/lunkeeper").read_bytes()


def test_the_chart_has_the_files_of_the_repository_and_no_other(release):
    packed = io.BytesIO(gzip.decompress((release / CHART).read_bytes()))
    with tarfile.open(fileobj=packed) as archive:
        names = set(archive.getnames())
        for name in names:
            assert archive.extractfile(name).read() == (ROOT / "charts" / name).read_bytes()
    assert {"lunkeeper/Chart.yaml", "lunkeeper/values.schema.json", "lunkeeper/README.md"} <= names


def test_the_bill_of_materials_is_whole(release, layer):
    bill = json.loads((release / BILL).read_text())
    assert bill["spdxVersion"] == "SPDX-2.3" and bill["dataLicense"] == "CC0-1.0"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", bill["creationInfo"]["created"])
    packages = {package["name"]: package for package in bill["packages"]}
    for package in packages.values():
        assert re.fullmatch(r"SPDXRef-[a-zA-Z0-9.-]+", package["SPDXID"])
        assert package["versionInfo"] and package["downloadLocation"]
    assert len({package["SPDXID"] for package in packages.values()}) == len(packages)
    kinds = {each["relatedSpdxElement"]: each["relationshipType"] for each in bill["relationships"]}
    wanted = {"libgrpc++1.51": "DYNAMIC_LINK", "tgt": "CONTAINS", "libboost1.81-dev": "STATIC_LINK"}
    for name, kind in wanted.items():
        assert kinds[packages[name]["SPDXID"]] == kind
    assert kinds.keys() == {package["SPDXID"] for package in packages.values()}
    # Each package whose licence is in the image is in the bill, and with the version that is installed.
    brought = {path.parent.name for path in layer.glob("usr/share/doc/*/copyright")}
    assert brought <= packages.keys()
    told = DEBIAN.dpkg("dpkg-query", "--show", "--showformat=${Version}", "tgt")
    assert packages["tgt"]["versionInfo"] == told
    assert f"?arch={DEBIAN.architecture}&" in packages["tgt"]["externalRefs"][0]["referenceLocator"]


def test_the_notes_name_each_file_and_have_the_changes(release):
    notes = (release / "RELEASE_NOTES.md").read_text()
    for name in (CHART, IMAGE, DEB, "SHA256SUMS.sig"):
        assert f"`{name}`" in notes
    assert "### " in notes.partition("## Changes")[2] and f"For {DEBIAN.architecture}, " in notes
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    assert commit.strip() in notes
