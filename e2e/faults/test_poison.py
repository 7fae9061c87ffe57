"""A request that crashes every worker that reads it, beside writers that check their data."""

import mmap
import os
import re
import time
import urllib.request

import pytest

from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.processes import free_port
from harness.rig import Rig
from harness.volume import MIB, Volume

# No other request goes there: the checkers use less of their volumes.
POISON = 24 * MIB
CHECKED = 16 * MIB


@pytest.mark.sanitizer
def test_a_request_that_crashes_the_worker_takes_down_its_own_volume_alone(folder, xfs_pool):
    metrics = f"127.0.0.1:{free_port()}"
    environment = {"LUNKEEPER_FAIL_POINT": f"worker.request.taken@{POISON}"}
    with Rig(
        folder / "poison", xfs_pool, environment=environment, node_options=[f"--metrics-address={metrics}"]
    ) as rig:
        volumes = [
            Volume(rig, rig.nodes[0], "mounted", fs="ext4", size=CHECKED).up(),
            Volume(rig, rig.nodes[0], "raw", block=True, size=CHECKED).up(),
        ]
        volumes[0].make_file(8 * MIB)
        poisoned = Volume(rig, rig.nodes[0], "poisoned", block=True, size=32 * MIB).up()
        checkers = [BlockChecker(volume).start() for volume in volumes]
        started = time.monotonic()
        with pytest.raises(OSError):
            write_directly(poisoned.path(), POISON)
        print(f"set aside after {time.monotonic() - started:.1f} s")
        for checker in checkers:
            checker.wait_for_writes(500, 120)
        assert rig.nodes[0].datapath.log.read_text().count("volume set aside") == 1
        wait_until(lambda: devices(metrics) == {"set_aside": 1, "healthy": 2}, 30, "the metric says so")
        for volume, checker in zip(volumes, checkers):
            checker.stop_good()
            checker.verify()
            volume.down().delete()
        poisoned.down()
        again = BlockChecker(poisoned.up(), blocks=CHECKED // 4096).start()  # nobody sends the request
        again.wait_for_writes(200, 120)
        again.stop_good()
        poisoned.down().delete()


def write_directly(path, offset):
    block = mmap.mmap(-1, 4096)  # aligned
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    try:
        os.pwrite(fd, block, offset)
    finally:
        os.close(fd)


def devices(address):
    """What the metric says of the node's devices, but for zeroes."""
    page = urllib.request.urlopen(f"http://{address}/metrics", timeout=30).read().decode()
    found = re.findall(r'lunkeeper_node_devices{health="(\w+)"} (\d+)', page)
    return {health: int(count) for health, count in found if count != "0"}
