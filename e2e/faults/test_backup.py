"""The storage host's commands: a backup of a pool that serves, its restore, and a pool that moves.

The steps are those of docs/backup.md, docs/disaster-recovery.md and docs/storage-host.md.
"""

import shutil
import subprocess

import pytest

from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.csi import code_of
from harness.pool import run
from harness.processes import Daemon, free_port, kill_pid
from harness.rig import Rig, free_control_port
from harness.volume import MIB, Volume

CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def rig(folder, xfs_pool):
    with Rig(folder / "backup", xfs_pool, nodes=2, split=True) as made:
        yield made


def command(rig, *words):
    return [str(rig.binary), *map(str, words)]


def make(rig, folder):
    """The command that makes a backup, as a process of its own."""
    words = command(rig, "backup", "make", f"--endpoint=unix://{rig.controller.socket}", folder)
    return Daemon("backup", words, log=rig.folder / "backup.log")


def write(volume, data):
    """At the begin of a raw block volume, on the medium."""
    with open(volume.path(), "r+b", buffering=0) as device:
        device.write(data)
    run("sync", volume.path())


def read(volume):
    with open(volume.path(), "rb", buffering=0) as device:
        return device.read(len(CONTENT))


def stop_storage(rig):
    """As docs/storage-host.md says. Refused while a node has a volume."""
    assert rig.controller.stop() == 0
    return subprocess.run(command(rig, "stop-tgtd", "--pool", rig.pool), capture_output=True, text=True)


def test_a_backup_is_made_under_a_writer_survives_kills_and_is_restored(rig, folder):
    still = Volume(rig, rig.nodes[0], "still", block=True, size=16 * MIB).up(True)
    write(still, CONTENT)
    busy = Volume(rig, rig.nodes[1], "busy", block=True, size=64 * MIB).up(True)
    backup = folder / "copy"
    checker = BlockChecker(busy).start()
    # The command is killed in the middle of it, and then the agent.
    for victim in ("command", "agent"):
        attempt = make(rig, backup).start()
        wait_until(lambda: (backup / "backup").exists() or not attempt.running(), 20, attempt.tail)
        if victim == "command":
            attempt.kill()
        else:
            kill_pid(rig.controller.pid)
            attempt.process.wait(20)
            rig.controller.kill()
            rig.start()
    files = sorted(path.name for path in rig.pool.rglob("*"))
    if not (backup / "backup").read_text().endswith("whole\n"):  # the kills were not too late
        run(*command(rig, "backup", "make", f"--endpoint=unix://{rig.controller.socket}", backup))
    checker.stop_good()
    assert sorted(path.name for path in rig.pool.rglob("*")) == files, "nothing is left in the pool"
    assert "as it was made" in run(*command(rig, "backup", "verify", backup))

    still.down(True)
    busy.down(True)
    assert rig.controller.stop() == 0
    kill_pid(rig.tgtd())
    shutil.rmtree(rig.pool)
    run("cp", "--archive", "--sparse=always", backup, rig.pool)
    rig.controller.start()
    client = rig.controller.client
    client.GetPluginInfo(seconds=20, wait=True)
    code, text = code_of(client.ListVolumes)
    assert (code, "accept-restore" in text) == ("UNAVAILABLE", True), f"{code}: {text}"
    run(*command(rig, "accept-restore", f"--endpoint=unix://{rig.controller.socket}"))
    rig.start()
    assert {entry.volume.volume_id for entry in client.ListVolumes().entries} == {still.id, busy.id}
    still.controller_publish().stage().publish()
    assert read(still) == CONTENT
    still.down(True).delete()
    busy.delete()


def test_a_pool_moves_to_another_host_with_all_that_was_written(rig, folder):
    volume = Volume(rig, rig.nodes[0], "moves", block=True, size=64 * MIB).up(True)
    checker = BlockChecker(volume).start()
    checker.wait_for_writes(1000)
    refused = stop_storage(rig)
    assert refused.returncode == 1 and volume.id in refused.stderr, refused
    rig.start()
    checker.stop_good()
    volume.down(True)
    ended = stop_storage(rig)
    assert ended.returncode == 0, ended
    # The new host: another pool folder, its own tgtd, another address; and the agent's memory.
    old = rig.pool.rename(rig.pool.with_name("away"))
    run("cp", "--archive", "--sparse=always", old, rig.pool)
    shutil.rmtree(old)
    other_portal, other_port = f"127.0.0.1:{free_port()}", free_control_port()
    rig.controller.argv = [
        word.replace(f"--portal={rig.portal}", f"--portal={other_portal}").replace(
            f"--tgt-control-port={rig.control_port}", f"--tgt-control-port={other_port}"
        )
        for word in rig.controller.argv
    ]
    rig.portal, rig.control_port = other_portal, other_port
    rig.start()
    volume.controller_publish().stage().publish()
    assert checker.verify(volume)
    checker = BlockChecker(volume).start()
    checker.stop_good()
    volume.down(True).delete()
