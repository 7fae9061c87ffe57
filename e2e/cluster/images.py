"""Container images without a registry: one layer of Debian's files, as `ctr images import` takes it."""

import hashlib
import io
import json
import os
import pathlib
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from cluster import programs, roots
from harness import places

# What `lunkeeper` runs, beside itself: of the packages that the Containerfile installs.
LUNKEEPER_TOOLS = ["mke2fs", "e2fsck", "resize2fs", "mkfs.xfs", "xfs_growfs", "tgtd"]
SHELL = ["sh", "cat", "sync", "sleep", "ls"]  # for people, and for `helm test`


class Image:
    """Files are added one by one; a program brings the libraries it is linked with, from the root."""

    def __init__(
        self,
        name: str,
        *,
        entrypoint: Iterable[str] = (),
        command: Iterable[str] = (),
        root: roots.Root = roots.HOST,
    ) -> None:
        self.root = root
        self.names = [name]
        self.entrypoint, self.command = list(entrypoint), list(command)
        self.files: dict[str, Path] = {}
        self.links: dict[str, str] = {}
        self.folders = {"tmp": 0o1777, "etc": 0o755, "run": 0o755, "var/lib": 0o755}

    def add(self, path: str, source: str | Path) -> Self:
        self.files[path.lstrip("/")] = pathlib.Path(source)
        return self

    def add_program(self, path: str, source: str | Path) -> Self:
        self.add(path, source)
        for place, library in self.root.libraries(Path(source)).items():
            self.add(place, library)
        return self

    def add_busybox(self, applets: Iterable[str] = ()) -> Self:
        """All its applets, or some."""
        busybox = self.root.find("busybox")
        self.add("/bin/busybox", busybox)
        for applet in applets or subprocess.check_output([busybox, "--list"], text=True).split():
            if applet != "busybox":  # it lists itself
                self.links[f"bin/{applet}"] = "busybox"
        return self

    def write(self, path: Path) -> Path:
        """Atomically, and only if the content has changed: an importer may be reading it."""
        layer = self._layer()
        digest = hashlib.sha256(layer).hexdigest()
        config = json.dumps(
            {
                "architecture": self.root.architecture,
                "os": "linux",
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
                "config": {
                    "Entrypoint": self.entrypoint,
                    "Cmd": self.command,
                    "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
                },
            }
        ).encode()
        config_name = f"{hashlib.sha256(config).hexdigest()}.json"
        manifest = json.dumps(
            [{"Config": config_name, "RepoTags": self.names, "Layers": [f"{digest}/layer.tar"]}]
        ).encode()
        stamp, content = path.with_suffix(".stamp"), " ".join([config_name, *self.names])
        if path.exists() and stamp.exists() and stamp.read_text() == content:
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path.with_suffix(".new"), "w") as out:
            for name, data in (
                (config_name, config),
                (f"{digest}/layer.tar", layer),
                ("manifest.json", manifest),
            ):
                _add_file(out, name, data, 0o644)
        os.replace(path.with_suffix(".new"), path)
        stamp.write_text(content)
        return path

    def _layer(self) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as out:
            parents = {
                str(parent): 0o755
                for name in [*self.files, *self.links, *self.folders]
                for parent in pathlib.PurePath(name).parents
                if str(parent) != "."
            }
            for folder, mode in sorted({**parents, **self.folders}.items()):
                info = tarfile.TarInfo(folder)
                info.type, info.mode = tarfile.DIRTYPE, mode
                out.addfile(info)
            for name, source in sorted(self.files.items()):
                _add_file(out, name, source.read_bytes(), 0o755)
            for name, target in sorted(self.links.items()):
                info = tarfile.TarInfo(name)
                info.type, info.linkname = tarfile.SYMTYPE, target
                out.addfile(info)
        return buffer.getvalue()


def _add_file(out: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    out.addfile(info, io.BytesIO(data))


def lunkeeper(name: str, binary: Path, root: roots.Root = roots.HOST) -> Image:
    """The image of the Containerfile."""
    image = Image(name, entrypoint=["/usr/bin/lunkeeper"], root=root)
    image.add_program("/usr/bin/lunkeeper", binary)
    for tool in LUNKEEPER_TOOLS:
        image.add_program(f"/usr/sbin/{tool}", root.find(tool))
    image.add("/etc/mke2fs.conf", root.folder / "etc/mke2fs.conf")
    image.links["var/run"] = "/run"
    return image.add_busybox(SHELL)


def sidecar(names: Iterable[str], binary: Path) -> Image:
    first, *others = names
    image = Image(first, entrypoint=[f"/{binary.name}"]).add(f"/{binary.name}", binary)
    image.names += others
    return image


def busybox(name: str) -> Image:
    return Image(name, command=["sh"]).add_busybox()


def pause(name: str) -> Image:
    # Process 1 of every pod: it only has to exist, and to end on SIGTERM.
    script = "trap 'exit 0' TERM INT; while :; do sleep 2147483647 & wait; done"
    return Image(name, command=["sh", "-c", script]).add_busybox()


def writer(name: str) -> Image:
    """Busybox and the programs with which the tests write and check blocks, and back them up."""
    image = busybox(name).add("/usr/bin/blocks", programs.path("blocks"))
    if places.BLOCK_CHECKER.exists():
        image.add_program("/usr/bin/block_checker", places.BLOCK_CHECKER)
    return image
