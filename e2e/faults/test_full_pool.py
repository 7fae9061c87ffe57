"""A full pool: the call fails with a clear error, and running volumes continue."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from harness import pool
from harness.checker import BlockChecker
from harness.cleanup import Cleanup
from harness.csi import code_of
from harness.leaks import loops, rows
from harness.rig import Rig
from harness.volume import MIB, Volume

pytestmark = pytest.mark.files

THICK = {"provisioning": "thick"}


def test_a_full_pool_refuses_new_volumes_and_lets_running_ones_go_on(folder, module_cleanup):
    small = pool.xfs_pool(folder / "small", module_cleanup, size="512M")
    with Rig(folder / "full", small) as rig:
        node = rig.nodes[0]
        running = Volume(rig, node, "running", block=True, size=64 * MIB, parameters=THICK).up()
        checker = BlockChecker(running).start()
        made, code = [], "OK"
        while code == "OK":
            assert len(made) < 10, "a pool of 512 MiB holds 640 MiB"
            volume = Volume(rig, node, f"thick-{len(made)}", block=True, size=64 * MIB, parameters=THICK)
            code, text = code_of(volume.create)
            if code == "OK":
                made.append(volume)
        assert code == "RESOURCE_EXHAUSTED", text
        assert len(made) >= 3, "most of the pool can be used"
        too_large = Volume(
            rig,
            node,
            "clone",
            block=True,
            size=128 * MIB,
            parameters=THICK,
            source={"volume": {"volume_id": made[0].id}},
        )
        assert code_of(too_large.create)[0] == "RESOURCE_EXHAUSTED"
        assert code_of(lambda: running.controller_expand(256 * MIB))[0] == "RESOURCE_EXHAUSTED"
        checker.wait_for_writes(1000)

        made.pop().delete()
        volume.size = 32 * MIB
        volume.create()  # there is space again
        checker.stop_good()
        checker.verify()
        running.down()
        for each in (running, volume, *made):
            each.delete()


class FilledRig(Rig):
    """A node, on a pool that can be filled up and emptied again."""

    def __init__(self, folder: Path, cleanup: Cleanup, **options: Any) -> None:
        self.small = pool.xfs_pool(folder / "small", cleanup, size="768M")
        super().__init__(folder / "rig", self.small, **options)

    def fill_pool(self, left: int) -> None:
        room = os.statvfs(self.small)
        with open(self.small / "fill", "wb") as fill:
            os.posix_fallocate(fill.fileno(), 0, room.f_bavail * room.f_frsize - left)

    def empty_pool(self) -> None:
        (self.small / "fill").unlink()


def write_unsynced(path: Path, mode: str) -> None:
    with open(path, mode, buffering=0) as file:
        for _ in range(48):
            file.write(b"x" * MIB)


def unstage_at_last(volume: Volume, **options: Any) -> list[str]:
    """The answers, until one is OK."""
    answers: list[str] = []
    while not answers or answers[-1] != "OK":
        assert len(answers) < 300, answers
        answers.append(code_of(volume.unstage, **options)[0])
        if answers[-1] in ("ABORTED", "DEADLINE_EXCEEDED"):  # a call that was given up is under way still
            time.sleep(0.2)
    return answers


@pytest.mark.parametrize(
    ("kind", "limit"), [("block", "4Mi"), ("block", "unlimited"), ("ext4", "unlimited"), ("xfs", "unlimited")]
)
def test_an_unstage_says_that_written_data_found_no_room(folder, module_cleanup, kind, limit):
    """A writer that closed its file or device without a sync learns of it nowhere else. With the limit, the
    write-back takes longer than an unstage waits at a time."""
    block = kind == "block"
    with FilledRig(folder / f"{kind}-{limit}", module_cleanup) as rig:
        limits = {"maxBandwidth": limit}
        volume = Volume(
            rig, rig.nodes[0], "lost", block=block, fs="" if block else kind, mutable_parameters=limits
        ).up()
        pool.run("sync", "-f", volume.target)
        rig.fill_pool(left=8 * MIB)
        write_unsynced(volume.path(), "r+b" if block else "wb")
        volume.unpublish()
        answers = unstage_at_last(volume, seconds=6)
        rig.empty_pool()
        volume.stage().publish()
        with open(volume.path(), "rb") as file:
            assert file.read(48 * MIB).count(b"x") < 48 * MIB, "nothing was lost"
        assert answers.count("DATA_LOSS") in (1, 2), answers
        volume.down().delete()


@pytest.mark.parametrize("fs", ["ext4", "xfs"])
def test_no_death_of_the_plugin_hides_that_written_data_found_no_room(folder, module_cleanup, fs):
    with FilledRig(folder / f"killed-{fs}", module_cleanup, nodes=1, split=True) as rig:
        node = rig.nodes[0]
        volume = Volume(rig, node, "lost", fs=fs, mutable_parameters={"maxBandwidth": "4Mi"})
        volume.up(with_controller=True)
        pool.run("sync", "-f", volume.target)
        rig.fill_pool(left=MIB)
        write_unsynced(volume.path(), "wb")
        volume.unpublish()
        assert code_of(volume.unstage, seconds=3)[0] == "DEADLINE_EXCEEDED"
        node.server.kill()
        rig.start()
        assert "DATA_LOSS" in unstage_at_last(volume, seconds=6)
        rig.empty_pool()
        volume.controller_unpublish().delete()


@pytest.mark.parametrize("fs", ["ext4", "xfs"])
def test_an_unstage_says_that_a_file_system_shut_down_with_unwritten_data(folder, module_cleanup, fs):
    """Here every request of the device succeeds: only the file system knows."""
    with FilledRig(folder / f"shut-{fs}", module_cleanup) as rig:
        volume = Volume(rig, rig.nodes[0], "lost", fs=fs).up()
        write_unsynced(volume.path(), "wb")
        pool.run("xfs_io", "-x", "-c", "shutdown", volume.target)
        volume.unpublish()
        assert unstage_at_last(volume) == ["DATA_LOSS", "OK"]
        volume.down().delete()


@pytest.mark.parametrize("fs", ["ext4", "xfs"])
def test_a_fenced_volume_is_unstaged_without_a_word_of_loss(folder, module_cleanup, fs):
    """It failed for good: every writer got an error."""
    with FilledRig(folder / f"fenced-{fs}", module_cleanup) as rig:
        volume = Volume(rig, rig.nodes[0], "fenced", fs=fs).up()
        write_unsynced(volume.path(), "wb")
        rig.fence(rig.nodes[0].id, [volume.id])
        pool.run("sh", "-c", f"! sync -f {volume.target}")
        volume.unpublish()
        answers = unstage_at_last(volume)
        assert "DATA_LOSS" not in answers
        rig.unfence(rig.nodes[0].id)
        volume.delete()


def test_a_mount_that_finds_no_room_gives_the_volume_back(folder, module_cleanup):
    """Nobody unstages what was never staged, so the device must not stay for its failed writes."""
    with FilledRig(folder / "blank", module_cleanup) as rig:
        volume = Volume(rig, rig.nodes[0], "blank", fs="xfs").create()
        rig.fill_pool(left=MIB)
        assert code_of(volume.stage)[0] != "OK"
        assert not loops(rig) and not rows(rig).get("grants")
        rig.empty_pool()
        volume.stage().unstage().delete()
