"""The user data path against libiscsi alone and against qemu-storage-daemon, on one target, turn by turn in one run."""

import os
import pathlib

from bench import tools
from harness.rig import Rig
from harness.volume import MIB, Volume

ROUNDS = 3
BLOCK_BYTES = 512
# What the data path must reach: of iscsi-perf (reads only, it cannot write), and times qemu-storage-daemon.
OF_ISCSI_PERF = {"4k-randread-qd1": 0.65, "4k-randread-qd32": 0.75, "128k-read-qd16": 0.9, "1m-read-qd8": 0.9}
TIMES_QEMU = {"4k-randread-qd32": 1.6, "4k-randwrite-qd32": 1.6, "1m-read-qd8": 1.6, "1m-write-qd8": 1.6}


def filled(device, size):
    """Random data all over, so that no read is answered from a hole."""
    with open(device, "r+b", buffering=0) as out, open("/dev/urandom", "rb") as noise:
        for _ in range(size // MIB):
            out.write(noise.read(MIB))
        os.fsync(out.fileno())  # or the first figures are those of a write-back


def measured(rig, volume, device):
    """{workload: {program: [I/Os a second, …]}} and {workload: [CPU seconds an I/O, …]} of our data path."""
    figures = {name: {"lunkeeper": [], "iscsi-perf": [], "qemu": []} for name in tools.WORKLOADS}
    cpu = {name: [] for name in tools.WORKLOADS}
    connection = volume.publish_context
    with tools.qemu_device(connection) as (qemu, _):
        for _ in range(ROUNDS):
            for name in tools.WORKLOADS:
                before = tools.cpu_seconds(rig.nodes[0].datapath.pid)
                figures[name]["lunkeeper"].append(tools.fio(device, name))
                used = tools.cpu_seconds(rig.nodes[0].datapath.pid) - before
                cpu[name].append(used / (figures[name]["lunkeeper"][-1] * tools.SECONDS))
                figures[name]["qemu"].append(tools.fio(qemu, name))
                alone = tools.iscsi_perf(connection, name, BLOCK_BYTES)
                if alone is not None:
                    figures[name]["iscsi-perf"].append(alone)
    return figures, cpu


def compared(ours, other, of_what, bar):
    return f"{ours / other:.2f} {of_what}{tools.verdict(bar, ours / other >= bar)}"


def report(figures, cpu):
    print(f"\n{'I/Os a second, medians':22} {'lunkeeper':>10} {'iscsi-perf':>10} {'qemu':>10} {'CPU us/I/O':>10}   ratios")
    for name, by_program in figures.items():
        ours, alone, qemu = (tools.median(by_program[key]) if by_program[key] else None
                             for key in ("lunkeeper", "iscsi-perf", "qemu"))
        ratios = [compared(ours, qemu, "x qemu", TIMES_QEMU.get(name, 1.0))]
        if alone:
            ratios.insert(0, compared(ours, alone, "of iscsi-perf", OF_ISCSI_PERF[name]))
        print(f"{name:22} {ours:10.0f} {alone or float('nan'):10.0f} {qemu:10.0f} {tools.median(cpu[name]) * 1e6:10.1f}   "
              f"{', '.join(ratios)}")


def run(folder, pool):
    print(f"Data path: {ROUNDS} rounds of {tools.SECONDS} s each, one target as the product starts it, its file in memory", flush=True)
    with Rig(folder / "datapath", pool, split=True) as rig:
        volume = Volume(rig, rig.nodes[0], "bench", block=True, size=1024 * MIB, mode="SINGLE_NODE_WRITER")
        volume.create().controller_publish().stage().publish()
        filled(volume.target, volume.size)
        report(*measured(rig, volume, str(pathlib.Path(volume.target))))
        volume.unpublish().unstage().controller_unpublish().delete()
