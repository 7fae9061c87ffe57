"""The storage host's commands: a backup of a pool that serves, its restore, and a pool that moves.

The steps are those of docs/backup.md, docs/disaster-recovery.md and docs/storage-host.md.
"""

import shutil
import subprocess

import pytest

from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.csi import code_of
from harness.faults import fail_points
from harness.pool import run
from harness.processes import Daemon, free_port, kill_pid
from harness.rig import Rig, free_control_port
from harness.volume import MIB, Volume

pytestmark = pytest.mark.files

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
    # Killed once more, before the backup is marked as opened.
    rig.controller.start(
        LUNKEEPER_FAIL_POINT="array.restore.log_removed", LUNKEEPER_FAIL_POINT_ONCE=str(rig.folder / "once")
    )
    wait_until(lambda: not rig.controller.running(), 20, rig.controller.tail)
    assert (rig.folder / "once").exists()
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


def die_at(rig, point, folder):
    """The agent is killed there while it makes a backup."""
    fired = rig.folder / "fired"
    fired.unlink(missing_ok=True)
    if rig.controller.running():
        assert rig.controller.stop() == 0
    rig.controller.start(LUNKEEPER_FAIL_POINT=point, LUNKEEPER_FAIL_POINT_ONCE=str(fired))
    wait_until(rig.controller.ready, 20, rig.controller.tail)
    attempt = make(rig, folder).start()
    wait_until(lambda: not attempt.running(), 20, attempt.tail)
    assert fired.exists(), f"{point} was not reached: {attempt.tail()}"
    wait_until(lambda: not rig.controller.running(), 10, "it has ended")


def test_a_backup_that_is_killed_at_any_step_goes_on(rig, folder):
    deleted, *volumes = (
        Volume(rig, rig.nodes[0], name, block=True, size=4 * MIB).create() for name in ("gone", "a", "b")
    )
    points = [point for point in fail_points() if point.startswith("array.backup.")]
    assert len(points) == 7, points
    for number, point in enumerate(points):
        backup = folder / f"copy-{number}"
        die_at(rig, "array.backup.image_listed", backup)
        # Each image that was copied is another one by now.
        for volume in volumes:
            (rig.pool / "volumes" / volume.id).write_bytes(bytes([number]) * 4 * MIB)
        die_at(rig, point, backup)
        rig.start()
        if number == 0:
            deleted.delete()
        run(*command(rig, "backup", "make", f"--endpoint=unix://{rig.controller.socket}", backup))
        assert "as it was made" in run(*command(rig, "backup", "verify", backup))
        images = {path.name: path.read_bytes() for path in (backup / "volumes").iterdir()}
        assert images == {volume.id: bytes([number]) * 4 * MIB for volume in volumes}, point
    for volume in volumes:
        volume.delete()


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
