"""Makes a release: everything that a user needs, in one folder, from a built program.

    PYTHONPATH=e2e python3 packaging/release.py [--build FOLDER] [--out FOLDER] [--key FILE]      (./dev release)

The same commit and the same build make the same bytes: all times are the commit's, and all lists are sorted. It is for
amd64, the only architecture that is built. NOTES_HEAD lists what is in the folder.
"""

import argparse
import gzip
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

import spdx
from cluster import images

ROOT = pathlib.Path(__file__).resolve().parents[1]
ARCHITECTURE = "amd64"
REPOSITORY = "ghcr.io/lunkeeper/lunkeeper"  # as the chart's values have it
NOTES_HEAD = """# Lunkeeper {version}
| file | what it is |
|---|---|
| `lunkeeper-{version}.tgz` | the Helm chart |
| `lunkeeper-{version}-{architecture}.image.tar` | the image `{repository}:{version}`, for `podman load` or `ctr images import` |
| `lunkeeper_{version}_{architecture}.deb` | the Debian 12 package for storage hosts |
| `kubectl-lunkeeper` | on your PATH, it makes `kubectl lunkeeper status` and the like work |
| `lunkeeper-{version}.spdx.json` | what image and package consist of (SPDX 2.3) |
| `SHA256SUMS` | checksums: `sha256sum --check SHA256SUMS` |
| `SHA256SUMS.sig`, `release.pub` | its signature, if this release is signed; docs/development.md says how to check it |

For {architecture} only, commit `{commit}`.

## Changes
"""


def run(*command, **more):
    """What the command prints."""
    return subprocess.run(
        list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True, timeout=600, **more
    ).stdout.strip()


def git(*arguments):
    return run("git", "-C", ROOT, *arguments)


def version():
    """The project's; the chart must have the same."""
    (project,) = re.findall(r"project\(lunkeeper VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    chart = (ROOT / "charts/lunkeeper/Chart.yaml").read_text()
    told = set(re.findall(r'^(?:version|appVersion): "?([^"\n]+)', chart, re.MULTILINE))
    if told != {project}:
        raise SystemExit(f"Chart.yaml has the versions {sorted(told)}, and CMakeLists.txt {project}")
    return project


def pack_chart(out, name, epoch):
    """As `helm package` does, but of what git knows, and with the commit's time."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(git("ls-files", "charts/lunkeeper").split("\n")):
            data = (ROOT / path).read_bytes()
            info = tarfile.TarInfo(path.removeprefix("charts/"))
            info.size, info.mtime, info.mode = len(data), epoch, 0o644
            archive.addfile(info, io.BytesIO(data))
    (out / name).write_bytes(gzip.compress(packed.getvalue(), mtime=epoch))


def pack_deb(out, build, epoch, folder):
    """CPack's package, with the commit's time; returns its content."""
    run("cpack", "--config", build / "CPackConfig.cmake", "-B", folder / "cpack")
    (made,) = (folder / "cpack").glob("*.deb")
    content = folder / "content"
    run("dpkg-deb", "--raw-extract", made, content)
    for path in [content, *content.rglob("*")]:
        os.utime(path, (epoch, epoch), follow_symlinks=False)
    times = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    run("dpkg-deb", "--build", "--root-owner-group", "-Zxz", content, out / made.name, env=times)
    return content


def owners(paths):
    """{package: its files among these}. Each must be of a package."""
    # Libraries are found in /lib, which is /usr/lib; the package has one of the two.
    forms = {path: {path, f"/usr{path}", path.removeprefix("/usr"), os.path.realpath(path)} for path in map(str, paths)}
    asked = sorted(set().union(*forms.values()))
    told = subprocess.run(["dpkg", "--search", *asked], capture_output=True, text=True, timeout=60).stdout
    package_of = {path: package for package, path in re.findall(r"^([^:,\s]+)[^/]*: (/.*)$", told, re.MULTILINE)}
    found = {}
    for path, known in forms.items():
        packages = {package_of[form] for form in known if form in package_of}
        if not packages:
            raise SystemExit(f"{path}: of no Debian package, so nobody can say what it is")
        found.setdefault(min(packages), []).append(path)
    return found


def libraries(program):
    return sorted(set(images.Image("").add_program("/program", program).files.values()) - {program})


def pack_image(out, name, tag, program, folder):
    """Returns {package: its files} of all that is in the image beside our program."""
    image = images.lunkeeper(tag, program)
    content = owners(sorted(path for path in image.files.values() if path != program))
    for package in content:
        notice = f"/usr/share/doc/{package}/copyright"
        if os.path.exists(notice):
            image.add(notice, os.path.realpath(notice))
    image.add("/usr/share/doc/lunkeeper/copyright", ROOT / "LICENSE")
    shutil.copyfile(image.write(folder / "image.tar"), out / name)
    return content


def notes(release, commit):
    """From CHANGELOG.md: the section of this version, or what is not released yet."""
    sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    titled = {section.split()[0].strip("[]"): section.partition("\n")[2] for section in sections}
    head = NOTES_HEAD.format(
        version=release, architecture=ARCHITECTURE, repository=REPOSITORY, commit=commit
    )
    return head + titled.get(release, titled.get("Unreleased", "")).strip() + "\n"


def add_checksums(out):
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(out.iterdir())
    ]
    (out / "SHA256SUMS").write_text("".join(lines))


def sign(out, key):
    """With any key that OpenSSL takes; an Ed25519 key makes the same signature each time."""
    run("openssl", "pkey", "-in", key, "-pubout", "-out", out / "release.pub")
    sums = out / "SHA256SUMS"
    run("openssl", "pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", sums, "-out", f"{sums}.sig")


def refuse_to_delete(out):
    """Only an earlier release is replaced, and other projects have checksums too."""
    names = {path.name for path in out.iterdir()} if out.exists() else set()
    known = {"SHA256SUMS", "SHA256SUMS.sig", "release.pub", "RELEASE_NOTES.md", "kubectl-lunkeeper"}
    others = {name for name in names - known if not name.startswith(("lunkeeper-", "lunkeeper_"))}
    if names and (others or not {"SHA256SUMS", "RELEASE_NOTES.md"} <= names):
        raise SystemExit(f"release: {out} has files that are no release; name another folder, or empty it")


def origin():
    """Of what it is made, for the notes: a signature must not pass uncommitted changes off as a commit."""
    commit = git("rev-parse", "HEAD")
    if not git("status", "--porcelain", "--untracked-files=no"):
        return commit
    print("release: there are uncommitted changes; its notes say so")
    return f"{commit}, with uncommitted changes"


def make(build, out, key):
    """Beside `out` first: what is there is a whole release, or the earlier one."""
    refuse_to_delete(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as temporary:
        made = pathlib.Path(temporary) / "release"
        made.mkdir()
        fill(build, made, key)
        shutil.rmtree(out, ignore_errors=True)
        made.rename(out)


def fill(build, out, key):
    release, commit, epoch = version(), origin(), int(git("log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        pack_chart(out, f"lunkeeper-{release}.tgz", epoch)
        program = pack_deb(out, build, epoch, folder) / "usr/bin/lunkeeper"
        image = f"lunkeeper-{release}-{ARCHITECTURE}.image.tar"
        content = pack_image(out, image, f"{REPOSITORY}:{release}", program, folder)
        bill = spdx.document(release, epoch, owners(libraries(program)), content)
    (out / f"lunkeeper-{release}.spdx.json").write_text(bill)
    shutil.copy(ROOT / "packaging/kubectl-lunkeeper", out)
    (out / "RELEASE_NOTES.md").write_text(notes(release, commit))
    add_checksums(out)
    if key:
        sign(out, key)


def main():
    parser = argparse.ArgumentParser(prog="./dev release", description="Makes a release, in one folder.")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / f"build/release-{version()}")
    parser.add_argument("--key", type=pathlib.Path, help="a private key in PEM, to sign the checksums with")
    given = parser.parse_args()
    make(given.build.resolve(), given.out.resolve(), given.key)
    for path in sorted(given.out.iterdir()):
        print(f"{path.stat().st_size:>12} {path}")


if __name__ == "__main__":
    main()
