"""A pool restored from an older copy.

Volumes that it does not know may be in use, so an operator must accept it first.
"""

import shutil

import pytest

from harness.cleanup import wait_until
from harness.csi import code_of
from harness.processes import kill_pid
from harness.rig import Rig
from harness.volume import MIB, Volume

pytestmark = pytest.mark.files

FAIL_POINT = "array.restore.accepted"


def replace(pool, copy):
    shutil.rmtree(pool)
    shutil.copytree(copy, pool)


def test_a_pool_put_back_from_a_copy_serves_nothing_until_it_is_accepted(folder, plain_pool):
    with Rig(folder / "restore", plain_pool) as rig:
        server = rig.controller
        old = Volume(rig, rig.nodes[0], "old", block=True, size=4 * MIB).create()
        assert server.stop() == 0
        shutil.copytree(rig.pool, folder / "copy")
        rig.start()
        Volume(rig, rig.nodes[0], "forgotten", block=True, size=4 * MIB).create()
        assert server.stop() == 0
        kill_pid(rig.tgtd())
        replace(rig.pool, folder / "copy")

        server.start(LUNKEEPER_FAIL_POINT=FAIL_POINT, LUNKEEPER_FAIL_POINT_ONCE=str(folder / "fired"))
        wait_until(lambda: code_of(server.client.GetPluginInfo)[0] == "OK", 20, server.tail)
        code, text = code_of(old.create)
        assert (code, "accept-restore" in text) == ("UNAVAILABLE", True), f"{code}: {text}"
        assert not server.client.Probe().ready.value
        assert code_of(server.client.AcceptRestore)[0] == "UNAVAILABLE", "it was killed while it accepted"
        assert (folder / "fired").exists()

        wait_until(lambda: not server.running(), 10, "it has ended")
        server.start()
        wait_until(lambda: code_of(server.client.AcceptRestore)[0] == "OK", 20, server.tail)
        wait_until(server.ready, 20, server.tail)
        assert [entry.volume.volume_id for entry in server.client.ListVolumes().entries] == [old.id]
        old.delete()
