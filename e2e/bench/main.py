"""`./dev bench [datapath|rpcs|memory|fence …]`: figures, side by side with others', medians of one run. They checker nothing but say
which bar of the project is met."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from bench import datapath, fence, memory, rpcs  # noqa: E402
from harness import pool  # noqa: E402
from harness.cleanup import Cleanup, interrupt_on_sigterm  # noqa: E402

# Each with where its pool lies: in memory, so that the disk of the day is not what is measured, or on the disk, whose
# flushes are part of the time an RPC takes.
BENCHES = {"datapath": (datapath.run, "memory"), "rpcs": (rpcs.run, "disk"), "memory": (memory.run, "memory"),
           "fence": (fence.run, "disk")}


def memory_pool(folder, cleanup):
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g", "tmpfs", folder], check=True)
    cleanup.add(subprocess.run, ["umount", folder])
    return folder


def main():
    names = sys.argv[1:] or list(BENCHES)
    if unknown := set(names) - set(BENCHES):
        raise SystemExit(f"bench: no such bench: {', '.join(sorted(unknown))}; there are: {', '.join(BENCHES)}")
    interrupt_on_sigterm()
    with Cleanup() as cleanup:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lk-bench-"))
        cleanup.add(shutil.rmtree, folder, True)
        pools = {"disk": pool.xfs_pool(folder / "disk", cleanup), "memory": memory_pool(folder / "memory", cleanup)}
        for name in names:
            run, place = BENCHES[name]
            run(folder, pools[place])
    print("\nbench: done")


if __name__ == "__main__":
    main()
