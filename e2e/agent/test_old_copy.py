"""A pool was restored on another host, and then the first host comes back with what it had."""

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest

from agent.agents import Agent, AgentRig
from harness.cleanup import wait_until
from harness.csi import code_of
from harness.pool import run
from harness.processes import free_port, kill_pid
from harness.rig import free_control_port
from harness.volume import MIB, Volume


class TwoHosts(AgentRig):
    """One array, and the hosts that may have it: the first, and the one where a backup is restored."""

    def __init__(self, folder, pool):
        super().__init__(folder, pool, nodes=1, start=False)
        self.first = self.agents[0]
        control, portal = free_control_port(), f"127.0.0.1:{free_port()}"
        self.backup, self.restored = folder / "backup", folder / "restored"
        self.second = Agent(self, self.array_name, self.restored, portal, control, host="-second")
        self.cleanup.add(self._forget, self.second)
        addresses = [self.first.address, self.second.address]
        self.write_arrays([{**entry, "address": addresses} for entry in self.entries()])

    def restart_controller(self):
        self.controller.kill()
        self.controller.start()
        self.controller.client.GetPluginInfo(seconds=20, wait=True)

    def command(self, agent, *words):
        run(self.binary, *words, f"--endpoint=unix://{agent.socket}")

    def restore(self, backup):
        """Where the second host has it, which then is the array."""
        shutil.copytree(backup, self.restored)
        self.second.start()
        self.wait_for_refusal()
        self.command(self.second, "accept-restore")
        wait_until(lambda: code_of(self.controller.client.ListVolumes)[0] == "OK", 30, "it serves")

    def wait_for_refusal(self):
        refused = self.controller.client.ListVolumes
        wait_until(lambda: "accept-restore" in code_of(refused)[1], 30, "it is asked")

    def stop(self, agent):
        agent.kill()
        kill_pid(agent.tgtd())

    def listed(self):
        return {entry.volume.volume_id for entry in self.controller.client.ListVolumes().entries}


@pytest.fixture
def rig(folder, xfs_pool):
    with TwoHosts(Path(tempfile.mkdtemp(dir=folder)), xfs_pool) as made:
        made.start()
        yield made


def test_the_old_host_is_not_taken_for_the_array_again(rig):
    kept = Volume(rig, rig.nodes[0], "kept", block=True, size=16 * MIB).create()
    rig.command(rig.first, "backup", "make", rig.backup)
    rig.stop(rig.first)
    rig.restore(rig.backup)
    new = Volume(rig, rig.nodes[0], "new", block=True, size=16 * MIB).create()

    rig.first.start()
    wait_until(rig.first.ready, 60, "the old host is back")
    assert rig.listed() == {kept.id, new.id}
    rig.restart_controller()  # which asks the first address first
    assert rig.listed() == {kept.id, new.id}
    wait_until(lambda: "is an older copy" in rig.controller.log.read_text(), 60, "that is said")

    rig.second.kill()
    code, text = code_of(new.delete)  # the old host would say that there is no such volume
    assert code == "UNAVAILABLE" and f"{rig.first.address}: the pool there (never restored)" in text, text
    rig.second.start()
    wait_until(lambda: code_of(rig.controller.client.ListVolumes)[0] == "OK", 30, "it serves again")
    new.delete()
    kept.delete()


def test_a_restored_pool_that_nobody_has_accepted_keeps_no_call_from_the_array(rig):
    kept = Volume(rig, rig.nodes[0], "kept", block=True, size=16 * MIB).create()
    rig.command(rig.first, "backup", "make", rig.restored)
    rig.first.kill()
    rig.second.start()
    rig.wait_for_refusal()
    rig.first.start()
    wait_until(lambda: code_of(rig.controller.client.ListVolumes)[0] == "OK", 30, "it serves")
    assert rig.listed() == {kept.id}
    kept.delete()


def test_the_copy_that_was_accepted_last_counts_also_where_the_clock_is_behind(rig):
    kept = Volume(rig, rig.nodes[0], "kept", block=True, size=16 * MIB).create()
    rig.command(rig.first, "backup", "make", rig.backup)
    rig.stop(rig.first)
    rig.restore(rig.backup)
    rig.stop(rig.second)
    with contextlib.closing(sqlite3.connect(rig.restored / "catalogue.db")) as catalogue:
        catalogue.execute("UPDATE meta SET restored_at = restored_at + 86400000000000")  # a day ahead
        catalogue.commit()
    rig.second.start()
    wait_until(lambda: code_of(rig.controller.client.ListVolumes)[0] == "OK", 30, "it serves")
    rig.stop(rig.second)
    shutil.rmtree(rig.restored)
    rig.restore(rig.backup)
    assert rig.listed() == {kept.id}
    kept.delete()
