"""How long I/O stands while a group of volumes is snapshotted: ten volumes on three nodes, all written to.

Measured where it matters, at the block devices: a small write at a time to each volume, and the longest that
one of them has waited while the call ran, on whichever volume.
"""

import contextlib
import mmap
import os
import subprocess
import threading
import time

from bench import tools
from harness.csi import code_of
from harness.rig import Rig
from harness.volume import MIB, Volume

VOLUMES, NODES, ROUNDS, BLOCK = 10, 3, 20, 4096
BAR_P50, BAR_WORST = 0.2, 1.0
# To all volumes together: what a disk keeps pace with, and more than it can take.
RATES = {"1,000 writes a second": 1000, "3,000 writes a second": 3000, "as fast as they go": 0}


class Probe:
    """Writes one block after another to a volume; notes when each was asked for and answered."""

    def __init__(self, volume):
        self.device = os.open(volume.target, os.O_RDWR | os.O_DIRECT)
        self.times, self.over = [], threading.Event()
        self.thread = threading.Thread(target=self._write)
        self.thread.start()

    def _write(self):
        with mmap.mmap(-1, BLOCK) as block:
            while not self.over.is_set():
                begun = time.monotonic()
                os.pwrite(self.device, block, 0)
                self.times.append((begun, time.monotonic()))
                time.sleep(0.001)

    def longest(self, begun, ended):
        """Of the writes that were under way in this time."""
        during = [end - begin for begin, end in self.times[:] if end >= begun and begin <= ended]
        return max(during, default=0)

    def close(self):
        self.over.set()
        self.thread.join()
        os.close(self.device)


@contextlib.contextmanager
def written_to(volumes, rate):
    """Load, and the probes. No rate: as fast as it goes."""
    with contextlib.ExitStack() as stack:
        load = stack.enter_context(
            subprocess.Popen(
                [
                    "fio",
                    "--name=load",
                    f"--filename={':'.join(str(volume.target) for volume in volumes)}",
                    "--ioengine=io_uring",
                    "--direct=1",
                    "--rw=randwrite",
                    "--bs=4096",
                    "--offset=1m",
                    f"--iodepth={2 * len(volumes)}",
                    "--runtime=3600",
                    "--time_based",
                    "--output=/dev/null",
                    *([f"--rate_iops={rate}"] if rate else []),
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        stack.callback(load.terminate)
        probes = [Probe(volume) for volume in volumes]
        for probe in probes:
            stack.callback(probe.close)
        time.sleep(2)
        yield probes


def one_round(rig, volumes, probes, name):
    """Seconds that I/O stood, and that the call took; None if the array said that it is too busy."""
    client, begun = rig.controller.client, time.monotonic()
    code, text = code_of(
        client.CreateVolumeGroupSnapshot,
        name=name,
        source_volume_ids=[volume.id for volume in volumes],
    )
    ended = time.monotonic()
    time.sleep(1.2)  # a write that waits is noted when it ends
    stood = max(probe.longest(begun, ended) for probe in probes)
    if code == "OK":
        # The same again: it is there, and says its members.
        group = client.CreateVolumeGroupSnapshot(
            name=name, source_volume_ids=[volume.id for volume in volumes]
        ).group_snapshot
        client.DeleteVolumeGroupSnapshot(
            group_snapshot_id=group.group_snapshot_id,
            snapshot_ids=[snapshot.snapshot_id for snapshot in group.snapshots],
        )
    elif code != "UNAVAILABLE":
        raise RuntimeError(f"{code}: {text}")
    return stood, ended - begun, code == "OK"


def without_a_group(probes):
    """The longest that a write waits anyway."""
    begun = time.monotonic()
    time.sleep(2)
    return max(probe.longest(begun, time.monotonic()) for probe in probes)


def measure(rig, volumes, rate):
    with written_to(volumes, RATES[rate]) as probes:
        quiet = without_a_group(probes)
        rounds = [one_round(rig, volumes, probes, f"{RATES[rate]}-{number}") for number in range(ROUNDS)]
    stood = [each[0] for each in rounds]
    p50, worst = tools.median(stood), max(stood)
    print(
        f"  {rate}\n"
        f"  I/O stood: p50 {p50 * 1000:4.0f} ms{tools.verdict(f'{BAR_P50 * 1000:.0f}', p50 <= BAR_P50)}, "
        f"worst {worst * 1000:4.0f} ms{tools.verdict(f'{BAR_WORST * 1000:.0f}', worst <= BAR_WORST)}; "
        f"without a group {quiet * 1000:.0f} ms"
    )
    print(
        f"  the call: p50 {tools.median([each[1] for each in rounds]) * 1000:.0f} ms; "
        f"{sum(each[2] for each in rounds)} of {ROUNDS} taken at once",
        flush=True,
    )


def run(folder, pool):
    print(
        f"\nGroup snapshots of {VOLUMES} volumes on {NODES} nodes, all written to, {ROUNDS} rounds",
        flush=True,
    )
    with Rig(folder / "group", pool, nodes=NODES, split=True) as rig:
        volumes = [
            Volume(rig, rig.nodes[number % NODES], f"group-{number}", block=True, size=64 * MIB).up(
                with_controller=True
            )
            for number in range(VOLUMES)
        ]
        for rate in RATES:
            measure(rig, volumes, rate)
        for volume in volumes:
            volume.down(with_controller=True).delete()
