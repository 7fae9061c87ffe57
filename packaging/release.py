"""Makes a release: everything that a user needs, in one folder, from built programs.

    PYTHONPATH=e2e python3 packaging/release.py [--arch NAME[=BUILD]]… [--out FOLDER] [--key FILE]    (./dev release)

The same commit and the same builds make the same bytes: all times are the commit's, and all lists are sorted. It is for
amd64 and arm64, or for some of them. NOTES_HEAD and NOTES_OF list what is in the folder.
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
from cluster import images, roots

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILDS = {"amd64": ROOT / "build/release", "arm64": ROOT / "build/arm64"}  # of ./dev build
REPOSITORY = "ghcr.io/lunkeeper/lunkeeper"  # as the chart's values have it
NOTES_HEAD = """# Lunkeeper {version}
| file | what it is |
|---|---|
| `lunkeeper-{version}.tgz` | the Helm chart |
{each}| `kubectl-lunkeeper` | on your PATH, it makes `kubectl lunkeeper status` and the like work |
| `SHA256SUMS` | checksums: `sha256sum --check SHA256SUMS` |
| `SHA256SUMS.sig`, `release.pub` | its signature, if this release is signed; docs/development.md says how to check it |

For {architectures}, commit `{commit}`.

## Changes
"""
NOTES_OF = """\
| `lunkeeper-{version}-{architecture}.image.tar` | the image `{repository}:{version}`, for `podman load` or `ctr --namespace k8s.io images import` |
| `lunkeeper_{version}_{architecture}.deb` | the Debian 12 package for storage hosts |
| `lunkeeper-{version}-{architecture}.spdx.json` | what image and package consist of (SPDX 2.3) |
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


def pack_image(out, tag, program, root, folder):
    """Returns {package: its files} of all that is in the image beside our program."""
    image = images.lunkeeper(tag, program, root)
    content = root.owners(sorted(path for path in image.files.values() if path != program))
    for package in content:
        notice = root.folder / f"usr/share/doc/{package}/copyright"
        if notice.exists():
            image.add(f"/usr/share/doc/{package}/copyright", notice.resolve())
    image.add("/usr/share/doc/lunkeeper/copyright", ROOT / "LICENSE")
    shutil.copyfile(image.write(folder / "image.tar"), out)
    return content


def pack_architecture(out, root, build, release, epoch):
    """What each architecture has of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        program = pack_deb(out, build, epoch, folder) / "usr/bin/lunkeeper"
        if roots.root_for(program) != root:
            raise SystemExit(f"release: {build} has no build for {root.architecture}")
        name = f"lunkeeper-{release}-{root.architecture}"
        content = pack_image(out / f"{name}.image.tar", f"{REPOSITORY}:{release}", program, root, folder)
        linked = root.owners(sorted(root.libraries(program).values()))
        (out / f"{name}.spdx.json").write_text(spdx.document(release, epoch, root, linked, content))


def notes(release, commit, architectures):
    """From CHANGELOG.md: the section of this version, or what is not released yet."""
    sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    titled = {section.split()[0].strip("[]"): section.partition("\n")[2] for section in sections}
    known = {"version": release, "repository": REPOSITORY}
    each = "".join(NOTES_OF.format(architecture=architecture, **known) for architecture in architectures)
    head = NOTES_HEAD.format(each=each, architectures=" and ".join(architectures), commit=commit, **known)
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


def make(builds, out, key):
    """Beside `out` first: what is there is a whole release, or the earlier one."""
    refuse_to_delete(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as temporary:
        made = pathlib.Path(temporary) / "release"
        made.mkdir()
        fill(builds, made, key)
        shutil.rmtree(out, ignore_errors=True)
        made.rename(out)


def fill(builds, out, key):
    release, commit, epoch = version(), origin(), int(git("log", "-1", "--format=%ct"))
    pack_chart(out, f"lunkeeper-{release}.tgz", epoch)
    for architecture, build in builds.items():
        pack_architecture(out, roots.BY_ARCHITECTURE[architecture], build, release, epoch)
    shutil.copy(ROOT / "packaging/kubectl-lunkeeper", out)
    (out / "RELEASE_NOTES.md").write_text(notes(release, commit, builds))
    add_checksums(out)
    if key:
        sign(out, key)


def architecture(text):
    """NAME, or NAME=BUILD."""
    name, _, build = text.partition("=")
    if name not in BUILDS:
        raise argparse.ArgumentTypeError(f"there is no {name}; there are: {', '.join(BUILDS)}")
    return name, pathlib.Path(build or BUILDS[name]).resolve()


def main():
    parser = argparse.ArgumentParser(prog="./dev release", description="Makes a release, in one folder.")
    names = "amd64 or arm64, and where it was built; may be repeated (default: both)"
    parser.add_argument("--arch", type=architecture, action="append", metavar="NAME[=BUILD]", help=names)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / f"build/release-{version()}")
    parser.add_argument("--key", type=pathlib.Path, help="a private key in PEM, to sign the checksums with")
    given = parser.parse_args()
    builds = dict(given.arch or map(architecture, BUILDS))
    make(dict(sorted(builds.items())), given.out.resolve(), given.key)
    for path in sorted(given.out.iterdir()):
        print(f"{path.stat().st_size:>12} {path}")


if __name__ == "__main__":
    main()
