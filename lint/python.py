"""Python: how wide it is, and its types."""

import os
import pathlib
import subprocess
import sys

from lint.tree import Tree

COLUMNS = 110
NARROW = ("csi-spec/", "e2e/", "lint/")
TYPED = ("e2e/cluster/", "e2e/harness/", "lint/")
ROOTS = (".", "e2e")  # folders whose packages Python imports
CACHE = pathlib.Path("build/mypy")


def files(tree: Tree, folders: tuple[str, ...]) -> list[str]:
    """The Python files in some folders."""
    return [name for name in tree.names(".py") if name.startswith(folders)]


def check_python_columns(tree: Tree) -> list[str]:
    """Lines are narrow."""
    return [
        f"{name}:{number}: {len(line)} columns, at most {COLUMNS}"
        for name in files(tree, NARROW)
        for number, line in enumerate(tree.lines(name), 1)
        if len(line) > COLUMNS
    ]


def check_types(tree: Tree) -> list[str]:
    """mypy --strict finds nothing in the folders with type hints."""
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--explicit-package-bases",
            "--ignore-missing-imports",  # of gRPC and YAML, which have no types in Debian
            "--no-error-summary",
            f"--cache-dir={CACHE.absolute()}",
            *files(tree, TYPED),
        ],
        cwd=tree.root,
        env={**os.environ, "MYPYPATH": os.pathsep.join(ROOTS)},
        capture_output=True,
        text=True,
    )
    if run.returncode == 0:
        return []
    return run.stdout.splitlines() or [f"mypy failed: {run.stderr.strip()[-300:]}"]
