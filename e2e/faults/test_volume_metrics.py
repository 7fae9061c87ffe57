"""What a node's metrics say of its volumes: real I/O, a target that freezes, a data path that dies."""

import os
import re
import signal

import pytest

from agent.agents import page
from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.processes import free_port
from harness.rig import Rig
from harness.volume import MIB, Volume

PORT = free_port()


@pytest.fixture(scope="module")
def rig(folder, xfs_pool):
    with Rig(folder / "metrics", xfs_pool, node_options=[f"--metrics-address=127.0.0.1:{PORT}"]) as rig:
        yield rig


@pytest.fixture
def volume(rig, request):
    volume = Volume(rig, rig.nodes[0], request.node.name, block=True, size=16 * MIB).up()
    yield volume
    volume.down().delete()


def series(volume):
    """{"name{other labels}": value} of the volume's series."""
    text = page(PORT, "/metrics")
    found = re.findall(rf'^(\w+)\{{volume="{volume.id}",?([^}}]*)\}} (\S+)$', text, re.MULTILINE)
    return {f"{name}{{{labels}}}": float(value) for name, labels, value in found}


def state(volume):
    shown = {name: value for name, value in series(volume).items() if "_volume_health" in name}
    now = [name for name, value in shown.items() if value == 1]
    assert len(shown) in (0, 3) and len(now) == len(shown) / 3
    return re.search('state="(\\w+)"', now[0])[1] if now else None


def test_a_volume_has_series_of_its_io_until_it_is_detached(rig):
    volume = Volume(rig, rig.nodes[0], "counted", block=True, size=16 * MIB).up()
    checker = BlockChecker(volume).start()
    checker.wait_for_writes(200)
    checker.stop_good()
    checker.verify()
    shown = series(volume)
    assert shown['lunkeeper_volume_io_seconds_count{op="write"}'] >= 200
    assert shown['lunkeeper_volume_io_seconds_bucket{op="write",le="+Inf"}'] >= 200
    assert shown['lunkeeper_volume_io_seconds_sum{op="write"}'] > 0
    assert shown['lunkeeper_volume_io_bytes_total{op="read"}'] >= MIB
    assert shown["lunkeeper_volume_reconnects_total{}"] == 0
    assert shown["lunkeeper_volume_io_errors_total{}"] == 0
    assert shown["lunkeeper_volume_attached_seconds{}"] > 1_700_000_000
    assert shown[f'lunkeeper_volume_path_since_seconds{{portal="{rig.portal}"}}'] > 1_700_000_000
    assert shown["lunkeeper_volume_path_moves_total{}"] == 0
    assert len(shown) < 50
    volume.down()
    wait_until(lambda: not series(volume), 5, "its series end")
    volume.delete()


def test_a_target_that_is_away_is_seen_while_it_is_and_counted(rig, volume):
    wait_until(lambda: state(volume) == "healthy", 5, "the metrics show it")  # each text is shown for 0.1 s
    checker = BlockChecker(volume).start()
    checker.wait_for_writes(50)
    os.kill(rig.tgtd(), signal.SIGSTOP)
    wait_until(lambda: state(volume) == "reconnecting", 30, "the metrics show it")
    os.kill(rig.tgtd(), signal.SIGCONT)
    wait_until(lambda: state(volume) == "healthy", 60, "the metrics show the end of it")
    before = series(volume)["lunkeeper_volume_reconnects_total{}"]
    os.kill(rig.tgtd(), signal.SIGKILL)
    wait_until(
        lambda: series(volume)["lunkeeper_volume_reconnects_total{}"] > before, 60, "the login is counted"
    )
    checker.wait_for_writes(50)
    checker.stop_good()


def test_a_data_path_that_is_dead_is_told(rig):
    assert "\nlunkeeper_node_datapath_answers 1\n" in page(PORT, "/metrics")
    rig.nodes[0].datapath.kill()
    wait_until(lambda: "\nlunkeeper_node_datapath_answers 0\n" in page(PORT, "/metrics"), 10, "it is told")
    rig.start()
    wait_until(lambda: "\nlunkeeper_node_datapath_answers 1\n" in page(PORT, "/metrics"), 30, "it is back")
