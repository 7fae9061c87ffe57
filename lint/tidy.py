"""clang-tidy over what the dev build compiles.

Its good results are remembered in the cache, by the content of a file and of our headers that it includes.
So the next run, also in another clone, checks only what changed.
"""

import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import tempfile

from lint.tree import Tree

COMMANDS = pathlib.Path("build/dev/compile_commands.json")
CLEAN = pathlib.Path(".cache/tidy")
MOST_TOGETHER = 8  # files that clang-tidy looks at as one
NOT_IN_DEV = (
    "_fuzz.cc",
    "base/tsan.cc",
)  # the builds with clang and TSan have these; clang-tidy does not see them

Options = tuple[str, ...]  # of the compiler
Files = list[tuple[str, pathlib.Path]]  # with the stamps that say each is clean


def compiled() -> list[tuple[str, str]]:
    """[(source, command)] of the dev build; a file of CMake's that only includes sources stands for them."""
    found = []
    for entry in json.loads(COMMANDS.read_text()):
        file = pathlib.Path(entry["file"])
        if file.parent.name == "Unity":
            names = [
                pathlib.Path(name) for name in re.findall(r'^#include "(.+)"', file.read_text(), re.MULTILINE)
            ]
        else:
            names = [file]
        found += [(str(name.relative_to(pathlib.Path.cwd())), entry["command"]) for name in names]
    return found


def unknown_to_be_clean(tree: Tree) -> dict[tuple[str, Options], Files]:
    """Of each target and its options, the files that clang-tidy has not seen as they are now."""
    # The generated headers follow from the .proto files.
    common = "".join(tree.text(name) for name in tree.names(".clang-tidy", ".proto"))
    root = str(pathlib.Path.cwd())  # removed from the options, so that they are the same in every clone
    # Tests are Catch2's macros more than functions: the compiler's warnings are enough for them.
    sources = {name for name in tree.names(".cc") if not name.endswith("_test.cc")}
    unknown: dict[tuple[str, Options], Files] = {}
    for name, command in compiled():
        if name not in sources:
            continue
        words = shlex.split(command)
        output = words.index("-o")
        target, options = (
            words[output + 1].partition(".dir/")[0],
            words[1:output],
        )  # "-o x.o -c x.cc" are the last
        headers = [header for header in sorted(tree.reached_from(name)) if header in tree]
        texts = [common, " ".join(options).replace(root, ""), *(tree.text(file) for file in [name, *headers])]
        stamp = CLEAN / hashlib.sha256("\0".join(texts).encode()).hexdigest()
        if not stamp.exists():
            unknown.setdefault((target, tuple(options)), []).append((name, stamp))
    return unknown


def run_tidy(text: str, options: Options, folder: str | None = None) -> list[str] | None:
    """What clang-tidy finds in a text; None when it finds nothing."""
    with tempfile.NamedTemporaryFile("w", suffix=".cc", dir=folder) as file:
        file.write(text)
        file.flush()
        run = subprocess.run(
            [
                "clang-tidy-16",
                "--quiet",
                "--config-file=.clang-tidy",
                file.name,
                "--",
                *options,
                "-Wno-unknown-warning-option",
                "-Wno-error",
            ],
            capture_output=True,
            text=True,
        )
    if run.returncode == 0:
        return None
    return [line for line in run.stdout.split("\n") if "error:" in line] or [
        f"clang-tidy failed: {run.stderr[-300:]}"
    ]


def tidy(options: Options, files: Files) -> list[str]:
    """The problems of some files of one target. They share headers, which take most of the time."""
    together = "".join(f'#include "{pathlib.Path(name).absolute()}"\n' for name, _ in files)
    problems = run_tidy(together, options, folder="build")
    if problems is None:
        CLEAN.mkdir(parents=True, exist_ok=True)
        for _, stamp in files:
            stamp.touch()
        return []
    if len(files) > 1:  # together they may share a name that each has for itself
        return [problem for file in files for problem in tidy(options, [file])]
    names = ", ".join(name for name, _ in files)
    return [problem if "error:" in problem else f"{names}: {problem}" for problem in problems]


def check_all_are_compiled(tree: Tree) -> list[str]:
    """What the dev build does not know, clang-tidy does not see."""
    if not COMMANDS.exists():
        return [f"there is no {COMMANDS}: ./dev build makes it"]
    known = {name for name, _ in compiled()}
    return [
        f"{name}: no target of the dev build has it"
        for name in tree.names(".cc")
        if name not in known and not name.endswith(NOT_IN_DEV)
    ]


def check_tidy(tree: Tree) -> list[str]:
    """clang-tidy finds nothing."""
    if not COMMANDS.exists():
        return [f"there is no {COMMANDS}: ./dev build makes it"]
    batches = [
        (options, files[at : at + MOST_TOGETHER])
        for (_, options), files in unknown_to_be_clean(tree).items()
        for at in range(0, len(files), MOST_TOGETHER)
    ]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [problem for found in pool.map(lambda batch: tidy(*batch), batches) for problem in found]
