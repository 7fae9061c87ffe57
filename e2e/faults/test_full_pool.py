"""A full pool: the call fails with a clear error, and running volumes continue."""

import os

import pytest

from harness import pool
from harness.checker import BlockChecker
from harness.csi import code_of
from harness.rig import Rig
from harness.volume import MIB, Volume

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


@pytest.mark.parametrize("limit", ["4Mi", "unlimited"])
def test_an_unstage_says_that_written_data_found_no_room(folder, module_cleanup, limit):
    """A writer that closed a raw block volume without a sync learns of it nowhere else. With the limit, the
    write-back takes longer than an unstage waits at a time."""
    small = pool.xfs_pool(folder / f"small-{limit}", module_cleanup, size="512M")
    with Rig(folder / f"lost-{limit}", small) as rig:
        limits = {"maxBandwidth": limit}
        volume = Volume(
            rig, rig.nodes[0], "lost", block=True, size=200 * MIB, mutable_parameters=limits
        ).up()
        room = os.statvfs(small)
        with open(small / "fill", "wb") as fill:
            os.posix_fallocate(fill.fileno(), 0, room.f_bavail * room.f_frsize - 24 * MIB)
        with open(volume.target, "r+b", buffering=0) as device:
            for _ in range(80):
                device.write(b"x" * MIB)
        volume.unpublish()
        answers = [code_of(volume.unstage)[0]]
        while answers[-1] != "OK":
            assert len(answers) < 20, answers
            answers.append(code_of(volume.unstage)[0])
        (small / "fill").unlink()
        assert rig.medium_of(volume).read_bytes()[: 80 * MIB].count(0) > 0, "nothing was lost"
        assert "DATA_LOSS" in answers
        volume.delete()
