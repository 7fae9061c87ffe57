"""`./dev bench [datapath|rpcs|memory|limits|fence|grants …]`: figures of one run, beside those of others.

Nothing fails here: a figure with a bar says whether it meets the bar. With `--against BINARY` the data path
and the RPCs are compared with another build instead (see comparison.py), and the exit code is 1 when this
build is worse.
"""

import argparse
import contextlib
import dataclasses
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence

from bench import changed_blocks, comparison, datapath, fence, grants, group, limits, memory, rpcs
from harness import places, pool
from harness.cleanup import Cleanup, interrupt_on_sigterm

Run = Callable[[pathlib.Path, pathlib.Path], None]  # takes a folder and a pool
Steps = Callable[  # takes a binary, too
    [pathlib.Path, pathlib.Path, pathlib.Path], contextlib.AbstractContextManager[Sequence[comparison.Step]]
]


@dataclasses.dataclass(frozen=True)
class Bench:
    """What a name runs, and where its pool is.

    In memory the disk is not part of the measurement. RPCs need the disk: its flushes are part of their time.
    """

    run: Run
    in_memory: bool
    steps: Steps | None = None  # of a comparison


BENCHES = {
    "datapath": Bench(datapath.run, True, datapath.compared_steps),
    "rpcs": Bench(rpcs.run, False, rpcs.compared_steps),
    "memory": Bench(memory.run, True),
    "limits": Bench(limits.run, True),
    "fence": Bench(fence.run, False),
    "grants": Bench(grants.run, True),
    "group": Bench(group.run, False),
    "changed-blocks": Bench(changed_blocks.run, False),
}


def memory_pool(folder: pathlib.Path, cleanup: Cleanup) -> pathlib.Path:
    """A file system in memory."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g", "tmpfs", folder], check=True)
    cleanup.add(subprocess.run, ["umount", folder])
    return folder


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(
        prog="./dev bench", description="Figures of the data path, RPCs, memory, fences and group snapshots."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}; default: all that apply"
    )
    parser.add_argument(
        "--against", type=pathlib.Path, metavar="BINARY", help="compare with another build's lunkeeper"
    )
    parser.add_argument("--rounds", type=int, help=f"of a comparison; default: {comparison.ROUNDS}")
    given = parser.parse_args()
    known = {name for name, bench in BENCHES.items() if bench.steps or not given.against}
    if unknown := set(given.names) - known:
        parser.error(f"no such bench: {', '.join(sorted(unknown))}; there are: {', '.join(sorted(known))}")
    if given.rounds is not None and (given.rounds < 1 or not given.against):
        parser.error("--rounds is at least 1, and goes with --against")
    if given.against and not given.against.is_file():
        parser.error(f"--against: there is no {given.against}")
    given.names = given.names or [name for name in BENCHES if name in known]
    return given


def compare(
    steps: Steps, name: str, folder: pathlib.Path, place: pathlib.Path, given: argparse.Namespace
) -> bool:
    """Whether this build is as fast as the other one."""
    return comparison.compare(
        name,
        lambda binary: steps(pathlib.Path(tempfile.mkdtemp(dir=folder)), place, binary),
        given.against.resolve(),
        places.LUNKEEPER,
        given.rounds or comparison.ROUNDS,
    )


def main() -> int:
    """The exit code."""
    given = arguments()
    interrupt_on_sigterm()
    passed = True
    with Cleanup() as cleanup:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lk-bench-"))
        cleanup.add(shutil.rmtree, folder, True)
        on_disk = pool.xfs_pool(folder / "disk", cleanup)
        in_memory = memory_pool(folder / "memory", cleanup)
        for name in given.names:
            bench = BENCHES[name]
            place = in_memory if bench.in_memory else on_disk
            if given.against and bench.steps:
                passed &= compare(bench.steps, name, folder, place, given)
            else:
                bench.run(folder, place)
    print(f"\nbench: {'done' if passed else 'FAILED: this build is worse'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
