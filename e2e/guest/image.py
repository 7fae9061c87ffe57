"""The guest's initramfs: busybox, init.sh, and the modules that are needed to reach the machine's files."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

from guest.kernel import BUSYBOX, Kernel

HERE = pathlib.Path(__file__).resolve().parent
AGENT = HERE / "agent.sh"
# Needed before the guest sees the machine's files, where its kernel finds all others. What they depend on
# comes with them.
MODULES = ("virtio_pci", "virtio_console", "virtio_blk", "9pnet_virtio", "9p", "overlay")
FOLDERS = ("bin", "proc", "sys", "dev", "modules", "machine", "memory", "root")


def make(kernel: Kernel, target: pathlib.Path) -> None:
    """Writes it to `target`."""
    tree = target.with_name(target.name + ".tree")
    for folder in FOLDERS:
        (tree / folder).mkdir(parents=True)
    shutil.copy(BUSYBOX, tree / "bin/busybox")
    modules = load_order(kernel.modules)
    for module in modules:
        shutil.copy(kernel.modules / module, tree / "modules" / pathlib.Path(module).name)
    values = {
        "MODULES": " ".join(pathlib.Path(module).name for module in modules),
        "MODULES_FOLDER": str(kernel.modules.resolve()),
        "AGENT": str(AGENT),
    }
    text = (HERE / "init.sh").read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    (tree / "init").write_text(text)
    (tree / "init").chmod(0o755)
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


def load_order(modules: pathlib.Path) -> list[str]:
    """The files of MODULES, each behind what it depends on, as modules.dep says (nearest first)."""
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

    for name in MODULES:
        add(by_name[name])
    return order
