"""A volume's limits, on a real tgtd with fio.

No speed is asserted: a limit is a most, so what a limited volume does in a time has a bound on any machine.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.cleanup import wait_until
from harness.csi import code_of
from harness.leaks import Leaks
from harness.processes import kill_pid
from harness.rig import Rig
from harness.volume import MIB, Volume

IOPS = 200
SECONDS = 4
# A change reaches the node; generous, since machines of tests are slow.
TAKES_EFFECT = 30


@pytest.fixture(scope="module")
def rig(folder: Path, xfs_pool: Path) -> Iterator[Rig]:
    with Rig(folder / "limits", xfs_pool) as rig:
        leaks = Leaks(rig)
        yield rig
        assert not leaks.found()


class Run(NamedTuple):
    """What a run of fio did, and the most that a limit lets through in its time."""

    done: int
    most: float

    @property
    def limited(self) -> bool:
        return self.done <= self.most


def fio(volume: Volume, seconds: int = SECONDS) -> Run:
    """Random reads of 4 KiB of a raw block volume, 32 at once."""
    run = subprocess.run(
        [
            "fio",
            "--name=limits",
            f"--filename={volume.target}",
            "--ioengine=io_uring",
            "--direct=1",
            "--rw=randread",
            "--bs=4096",
            "--iodepth=32",
            f"--runtime={seconds}",
            "--time_based",
            "--output-format=json",
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=seconds + 120,
    )
    job = json.loads(run.stdout[run.stdout.index("{") :])["jobs"][0]["read"]
    print(f"{job['total_ios']} I/Os in {job['runtime']} ms")
    # With what was saved up, and what was in flight.
    return Run(int(job["total_ios"]), IOPS * (job["runtime"] / 1000 + 0.2) + 64)


def wait_for(volume: Volume, limited: bool) -> None:
    wait_until(lambda: fio(volume, 1).limited is limited, TAKES_EFFECT, f"limited: {limited}")


@pytest.fixture
def volume(rig: Rig, request: pytest.FixtureRequest) -> Iterator[Volume]:
    volume = Volume(rig, rig.nodes[0], request.node.name[5:40], block=True, size=64 * MIB)
    yield volume
    volume.modify(maxIops="unlimited", maxBandwidth="unlimited")
    volume.down().delete()


def test_a_limit_is_far_below_what_the_volume_does_without_and_changes_while_it_is_used(
    volume: Volume,
) -> None:
    volume.up()
    free = fio(volume)
    assert not free.limited
    volume.modify(maxIops=str(IOPS))
    wait_for(volume, limited=True)
    slow = fio(volume)
    assert slow.limited and 0 < slow.done < free.done
    volume.modify(maxIops="unlimited")
    wait_for(volume, limited=False)


def test_a_volume_is_limited_from_the_first_moment_and_a_killed_worker_leaves_it_so(
    rig: Rig, volume: Volume
) -> None:
    volume.mutable_parameters = {"maxIops": str(IOPS)}
    volume.up()
    assert fio(volume).limited
    kill_pid(wait_until(rig.nodes[0].datapath.worker, 10, "there is a worker"))
    assert fio(volume).limited


def test_the_server_killed_and_away_leaves_the_limits_as_they_are(rig: Rig, volume: Volume) -> None:
    volume.mutable_parameters = {"maxIops": str(IOPS)}
    volume.up()
    server = rig.nodes[0].server
    server.kill()
    assert fio(volume).limited
    server.start()
    wait_until(server.ready, 60, "the server is back")
    assert fio(volume).limited
    volume.modify(maxIops="unlimited", maxBandwidth="unlimited")
    wait_for(volume, limited=False)


def test_a_file_system_under_a_limit_syncs_and_unmounts_without_an_error(rig: Rig) -> None:
    volume = Volume(rig, rig.nodes[0], "limited-fs", mutable_parameters={"maxIops": "100"}).up()
    began = time.monotonic()
    for number in range(3):
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={volume.target}/{number}", "bs=64k", "count=16", "conv=fsync"],
            check=True,
            capture_output=True,
            timeout=120,
        )
    print(f"three files in {time.monotonic() - began:.1f} s")
    health = volume.node.client.NodeGetVolumeHealth(
        volume_id=volume.id, volume_publish_path=str(volume.target), staging_target_path=str(volume.staging)
    )
    assert "FAILED" not in str(health).upper(), health
    volume.down().delete()


def test_durability_changes_only_while_no_node_has_the_volume(rig: Rig) -> None:
    volume = Volume(rig, rig.nodes[0], "durability").up()
    code, text = code_of(lambda: volume.modify(durability="sync", maxIops="300"))
    assert code == "FAILED_PRECONDITION" and rig.nodes[0].id in text, f"{code}: {text}"
    volume.unpublish().unstage()
    volume.modify(durability="sync", maxIops="300")
    volume.stage().publish()
    (volume.target / "file").write_text("still here")
    volume.down().delete()
