"""The initramfs of a guest: busybox, its first process, and the modules that this one needs.

`make` is for machine.py: it goes on in the machine's own files. `make_writer` is for moving.py: the whole
guest is in it, since a guest that has the machine's files cannot migrate.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from guest.kernel import BUSYBOX, Kernel
from harness import places

HERE = pathlib.Path(__file__).resolve().parent
AGENT = HERE / "agent.sh"
DISK_MODULES = ("virtio_pci", "virtio_console", "virtio_blk")
# Needed before the guest sees the machine's files, where its kernel finds all others. What they depend on
# comes with them.
MODULES = (*DISK_MODULES, "9pnet_virtio", "9p", "overlay")
FOLDERS = ("bin", "proc", "sys", "dev", "modules", "machine", "memory", "root")


def make(kernel: Kernel, target: pathlib.Path) -> None:
    """Writes it to `target`."""
    values = {"MODULES_FOLDER": str(kernel.modules.resolve()), "AGENT": str(AGENT)}
    tree = _tree(kernel, target, MODULES, "init.sh", values)
    _pack(tree, target)


def make_writer(kernel: Kernel, target: pathlib.Path, record: bytes = b"") -> None:
    """Writes it to `target`. `record`: of what an earlier guest has written; the checker's own format."""
    tree = _tree(kernel, target, DISK_MODULES, "writer.sh", {})
    for source in (places.BLOCK_CHECKER, *_libraries_of(places.BLOCK_CHECKER)):
        path = tree / ("bin" if source == places.BLOCK_CHECKER else str(source.parent).lstrip("/"))
        path.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, path / source.name)
    if record:
        (tree / "record").write_bytes(record)
    _pack(tree, target)


def _tree(
    kernel: Kernel, target: pathlib.Path, modules: Sequence[str], init: str, values: Mapping[str, str]
) -> pathlib.Path:
    tree = target.with_name(target.name + ".tree")
    for folder in FOLDERS:
        (tree / folder).mkdir(parents=True)
    shutil.copy(BUSYBOX, tree / "bin/busybox")
    files = load_order(kernel.modules, modules)
    for module in files:
        shutil.copy(kernel.modules / module, tree / "modules" / pathlib.Path(module).name)
    text = (HERE / init).read_text()
    names = " ".join(pathlib.Path(module).name for module in files)
    for name, value in {"MODULES": names, **values}.items():
        text = text.replace(f"@{name}@", value)
    (tree / "init").write_text(text)
    (tree / "init").chmod(0o755)
    return tree


def _libraries_of(program: pathlib.Path) -> list[pathlib.Path]:
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=20, check=True).stdout
    return [pathlib.Path(library) for library in re.findall(r"(?:=> )?(/\S+) \(0x", linked)]


def _pack(tree: pathlib.Path, target: pathlib.Path) -> None:
    with open(target, "wb") as out:
        subprocess.run(
            f"find . | {BUSYBOX} cpio -o -H newc",
            shell=True,
            cwd=tree,
            stdout=out,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=60,
        )
    shutil.rmtree(tree)


def load_order(modules: pathlib.Path, wanted: Sequence[str]) -> list[str]:
    """The files of the modules, each behind what it depends on, as modules.dep says (nearest first)."""
    depends: dict[str, list[str]] = {}
    by_name: dict[str, str] = {}
    for line in (modules / "modules.dep").read_text().split("\n"):
        if ":" in line:
            path, _, others = line.partition(":")
            depends[path] = others.split()
            by_name[pathlib.Path(path).stem.replace("-", "_")] = path
    order: list[str] = []

    def add(path: str) -> None:
        for other in depends[path]:
            add(other)
        if path not in order:
            order.append(path)

    for name in wanted:
        add(by_name[name])
    return order
