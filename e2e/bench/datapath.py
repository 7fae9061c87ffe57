"""The data path beside libiscsi alone and qemu-storage-daemon, by turns on one target."""

import contextlib
import functools
import os
import pathlib
from collections.abc import Iterator, Sequence

from bench import tools
from bench.comparison import Figure, Sample, Step
from harness.rig import Rig
from harness.volume import MIB, Volume

ROUNDS = 3
BLOCK_BYTES = 512
COMPARED_SIZE = 256 * MIB  # each sample of a comparison fills a volume first
# What the data path must reach: of iscsi-perf (reads only, it cannot write), and times qemu-storage-daemon.
OF_ISCSI_PERF = {"4k-randread-qd1": 0.65, "4k-randread-qd32": 0.75, "128k-read-qd16": 0.9, "1m-read-qd8": 0.9}
TIMES_QEMU = {"4k-randread-qd32": 1.6, "4k-randwrite-qd32": 1.6, "1m-read-qd8": 1.6, "1m-write-qd8": 1.6}


def filled(device, size):
    """Random data all over, so that no read is answered from a hole."""
    with open(device, "r+b", buffering=0) as out, open("/dev/urandom", "rb") as noise:
        for _ in range(size // MIB):
            out.write(noise.read(MIB))
        os.fsync(out.fileno())  # or the first figures are those of a write-back


def one_workload(rig, device, name):
    """I/Os a second of our data path, and the processor seconds that it uses for one I/O."""
    before = tools.cpu_seconds(rig.nodes[0].datapath.pid)
    speed = tools.fio(device, name)
    return speed, (tools.cpu_seconds(rig.nodes[0].datapath.pid) - before) / (speed * tools.SECONDS)


def measured(rig, volume, device):
    """{workload: {program: [I/Os a second, …]}}, and {workload: [CPU seconds an I/O, …]} of our data path."""
    figures = {name: {"lunkeeper": [], "iscsi-perf": [], "qemu": []} for name in tools.WORKLOADS}
    cpu = {name: [] for name in tools.WORKLOADS}
    connection = volume.publish_context
    with tools.qemu_device(connection) as qemu:
        for _ in range(ROUNDS):
            for name in tools.WORKLOADS:
                ours, ours_cpu = one_workload(rig, device, name)
                figures[name]["lunkeeper"].append(ours)
                cpu[name].append(ours_cpu)
                figures[name]["qemu"].append(tools.fio(qemu, name))
                alone = tools.iscsi_perf(connection, name, BLOCK_BYTES)
                if alone is not None:
                    figures[name]["iscsi-perf"].append(alone)
    return figures, cpu


def compared(ours, other, of_what, bar):
    return f"{ours / other:.2f} {of_what}{tools.verdict(bar, ours / other >= bar)}"


def report(figures, cpu):
    print(
        f"\n{'I/Os a second, medians':22} {'lunkeeper':>10} {'iscsi-perf':>10} {'qemu':>10}"
        f" {'CPU us/I/O':>10}   ratios"
    )
    for name, by_program in figures.items():
        ours, alone, qemu = (
            tools.median(by_program[key]) if by_program[key] else None
            for key in ("lunkeeper", "iscsi-perf", "qemu")
        )
        ratios = [compared(ours, qemu, "x qemu", TIMES_QEMU.get(name, 1.0))]
        if alone:
            ratios.insert(0, compared(ours, alone, "of iscsi-perf", OF_ISCSI_PERF[name]))
        print(
            f"{name:22} {ours:10.0f} {alone or float('nan'):10.0f} {qemu:10.0f}"
            f" {tools.median(cpu[name]) * 1e6:10.1f}   {', '.join(ratios)}"
        )


@contextlib.contextmanager
def filled_volume(folder, pool, size, binary=None):
    """A rig of that binary, and a raw block volume in it that is published and full of random data."""
    with Rig(folder, pool, split=True, binary=binary) as rig:
        volume = Volume(rig, rig.nodes[0], "bench", block=True, size=size, mode="SINGLE_NODE_WRITER")
        volume.create().controller_publish().stage().publish()
        filled(volume.target, volume.size)
        yield rig, volume
        volume.unpublish().unstage().controller_unpublish().delete()


def run(folder, pool):
    print(
        f"Data path: {ROUNDS} rounds of {tools.SECONDS} s each, one target, its file in memory",
        flush=True,
    )
    with filled_volume(folder / "datapath", pool, 1024 * MIB) as (rig, volume):
        report(*measured(rig, volume, str(pathlib.Path(volume.target))))


def workload_sample(rig, device, name) -> Sample:
    """The figures of one workload for a comparison."""
    speed, cpu = one_workload(rig, device, name)
    sample = {Figure(name, "I/Os/s", higher_is_better=True): speed}
    if tools.WORKLOADS[name][2] > 1:  # one I/O at a time is too little work to measure
        sample[Figure(f"{name} processor", "us/I/O", higher_is_better=False)] = cpu * 1e6
    return sample


@contextlib.contextmanager
def compared_steps(
    folder: pathlib.Path, pool: pathlib.Path, binary: pathlib.Path
) -> Iterator[Sequence[Step]]:
    """A step for each workload, with processes of this binary."""
    with filled_volume(folder, pool, COMPARED_SIZE, binary) as (rig, volume):
        yield [functools.partial(workload_sample, rig, volume.target, name) for name in tools.WORKLOADS]
