"""A data path is replaced by another one under a checking writer, as a rolling update does."""

import pytest

from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.rig import Datapath, Rig
from harness.volume import MIB, Volume

ROUNDS = 10


@pytest.fixture(scope="module")
def rig(folder, xfs_pool):
    with Rig(folder / "successor", xfs_pool, datapath_options=["--take-over"]) as rig:
        yield rig


def start_successor(rig: Rig) -> Datapath:
    """Started as the next pod's; the node's data path from now on. Returns the old one, told to stop."""
    node = rig.nodes[0]
    old, node.datapath = node.datapath, Datapath(rig, node.name, ["--take-over"])
    node.datapath.start()
    wait_until(lambda: old.worker() is None and node.datapath.worker(), 20, "the successor serves")
    assert old.running(), "in a pod, it would be started again"
    old.process.terminate()
    return old


@pytest.mark.sanitizer
def test_a_rolling_update_of_the_data_path_costs_no_error(rig):
    volumes = [
        Volume(rig, rig.nodes[0], "mounted", fs="ext4", size=64 * MIB).up(),
        Volume(rig, rig.nodes[0], "raw", block=True, size=16 * MIB).up(),
    ]
    volumes[0].make_file(8 * MIB)
    checkers = [BlockChecker(volume).start() for volume in volumes]
    for _ in range(ROUNDS):
        old = start_successor(rig)
        wait_until(lambda: not old.running(), 5, "the old one ends at once")
        for checker in checkers:
            checker.wait_for_writes(100)
    longest = [checker.stop_good()["longest_ms"] for checker in checkers]
    print(f"longest stalls {longest} ms over {ROUNDS} hand-overs")
    for volume, checker in zip(volumes, checkers):
        checker.verify()
        volume.down().delete()


def test_a_volume_is_staged_and_unstaged_while_the_data_path_is_replaced(rig):
    staged = Volume(rig, rig.nodes[0], "staged-before", block=True, size=16 * MIB).up()
    old = start_successor(rig)
    new = Volume(rig, rig.nodes[0], "staged-after", block=True, size=16 * MIB).up()
    staged.down().delete()
    new.down().delete()
    assert old.stop() == 0
