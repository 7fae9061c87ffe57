"""Makes each mutant in a copy of the tree, builds its test there, and expects that to fail.

The copy stays in build/mutants, so that the next run builds little. First each test has to pass without any
mutant, or its failure would say nothing.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys

from harness.places import ROOT
from mutants.mutant import Mutant
from mutants.mutants import MUTANTS

TREE = ROOT / "build/mutants"
BUILD = TREE / "build/dev"
TEST_SECONDS = 300  # a mutant may make its test wait for ever, which is noticed as well


def copy_tree() -> None:
    """What Git knows or would add, and nothing else; a file that is the same stays as old as it is."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        source, copy = ROOT / name, TREE / name
        if copy.exists() and copy.read_bytes() == source.read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    for copy in TREE.rglob("*"):
        name = str(copy.relative_to(TREE))
        if copy.is_file() and not name.startswith("build/") and name not in names:
            copy.unlink()


def build(programs: set[str]) -> bool:
    targets = [pathlib.Path(program).name for program in sorted(programs)]
    with open(TREE / "build/log", "a") as log:
        return (
            subprocess.run(
                ["cmake", "--build", BUILD, "--target", *targets],
                cwd=TREE,
                env={**os.environ, "CCACHE_BASEDIR": str(TREE), "CCACHE_NOHASHDIR": "1"},
                stdout=log,
                stderr=log,
            ).returncode
            == 0
        )


def passes(mutant: Mutant) -> bool:
    """Whether its test passes. It has to run: a name that leads to no test is a failure of this program."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        run = subprocess.run(
            [BUILD / mutant.program, mutant.tests, "--warn=NoTests"],
            cwd=BUILD / pathlib.Path(mutant.program).parent,
            capture_output=True,
            timeout=TEST_SECONDS,
        )
        return run.returncode == 0
    return False


@contextlib.contextmanager
def made(mutant: Mutant):
    file = TREE / mutant.file
    text = file.read_text()
    assert text.count(mutant.before) == 1, f"{mutant.name}: {mutant.file} has changed"
    file.write_text(text.replace(mutant.before, mutant.after))
    try:
        yield
    finally:
        file.write_text(text)


def try_mutant(mutant: Mutant) -> str:
    """Empty: it is caught."""
    with made(mutant):
        if not build({mutant.program}):
            return "DOES NOT COMPILE"
        return "NOT CAUGHT" if passes(mutant) else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these mutants")
    names = parser.parse_args().names
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    copy_tree()
    (TREE / "build").mkdir(exist_ok=True)
    subprocess.run(["cmake", "--preset", "dev"], cwd=TREE, check=True, stdout=subprocess.DEVNULL)
    if not build({mutant.program for mutant in chosen}):
        sys.exit(f"the tree does not build as it is: see {TREE / 'build/log'}")
    tests = {(mutant.program, mutant.tests): mutant for mutant in chosen}
    failing = [" ".join(test) for test, mutant in tests.items() if not passes(mutant)]
    if failing:
        sys.exit("these fail without any mutant:\n" + "\n".join(failing))
    missed = 0
    for mutant in chosen:
        trouble = try_mutant(mutant)
        missed += trouble != ""
        print(f"{mutant.name:<30} {trouble or f'{mutant.program}: {mutant.tests}'}", flush=True)
    print(f"{len(chosen)} mutants of the program, {missed} not caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
