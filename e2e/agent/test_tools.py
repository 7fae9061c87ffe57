"""The commands for the person on call, against a real controller, node and agent."""

import json
import mmap
import os
import pathlib
import subprocess
import threading

import pytest

from agent.agents import AgentRig
from harness.cleanup import wait_until
from harness.places import LUNKEEPER
from harness.volume import MIB, Volume


@pytest.fixture(scope="module")
def rig(folder, xfs_pool):
    with AgentRig(folder / "tools", xfs_pool) as rig:
        yield rig


@pytest.fixture
def volume(rig, request):
    volume = Volume(rig, rig.nodes[0], request.node.name, block=True, size=16 * MIB)
    volume.create().controller_publish().stage().publish()
    yield volume
    volume.unpublish().unstage().controller_unpublish().delete()


def run(server, *words):
    """(exit code, standard output, standard error)"""
    done = subprocess.run(
        [LUNKEEPER, *words, f"--endpoint=unix://{server.socket}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def listed(server, what):
    code, out, errors = run(server, what, "--output=json")
    assert code == 0, errors
    return json.loads(out)


def test_lists_have_what_is_there(rig, volume):
    (row,) = (row for row in listed(rig.controller, "volumes") if row["id"] == volume.id)
    assert row["size_bytes"] == 16 * MIB and row["nodes"] == [rig.nodes[0].id]
    assert row["claim"] is None and row["array"] == rig.array_name
    (node,) = listed(rig.controller, "nodes")
    assert node["id"] == rig.nodes[0].id and node["volumes"] == [volume.id] and node["sessions"] == 1
    (array,) = listed(rig.controller, "arrays")
    assert array["serves"] is True and array["grants"] == 1 and array["available_bytes"] > 0
    snapshot = rig.controller.client.CreateSnapshot(name="tools", source_volume_id=volume.id).snapshot
    (row,) = listed(rig.controller, "snapshots")
    assert row["id"] == snapshot.snapshot_id and row["volume"] == volume.id and row["ready"] is True
    rig.controller.client.DeleteSnapshot(snapshot_id=snapshot.snapshot_id)


def test_top_says_who_writes_and_a_node_how_long_it_takes(rig, volume):
    """It ends by itself where nobody could end it: without a terminal."""
    ended, block = threading.Event(), mmap.mmap(-1, 4096)  # aligned, as O_DIRECT wants it

    def write():
        device = os.open(volume.target, os.O_WRONLY | os.O_DIRECT)
        while not ended.is_set():
            os.pwrite(device, block, 0)
        os.close(device)

    def busy(server):
        (row,) = (row for row in listed(server, "top") if row["volume"] == volume.id)
        return row if row["writes_per_second"] > 0 else None

    writer = threading.Thread(target=write)
    writer.start()
    try:
        at_array = wait_until(lambda: busy(rig.controller), 60, "the controller sees writes")
        on_node = wait_until(lambda: busy(rig.nodes[0].server), 60, "the node sees writes")
    finally:
        ended.set()
        writer.join()
    for row in (at_array, on_node):
        assert row["node"] == rig.nodes[0].id and row["written_bytes_per_second"] > 0
    assert at_array["write_milliseconds"] is None and at_array["in_flight"] is None
    assert on_node["write_milliseconds"] > 0 and on_node["in_flight"] > 0
    code, out, _ = run(rig.controller, "top")
    assert code == 0 and volume.id in out and "\x1b" not in out


def test_doctor_finds_nothing_where_nothing_is_wrong(rig, volume):
    for server in (rig.controller, rig.nodes[0].server, rig.agents[0]):
        assert run(server, "doctor") == (0, "nothing that it looks for is wrong with the server\n", "")


def test_an_agent_that_is_away_is_found_and_named(rig, volume):
    rig.agents[0].kill()
    code, out, _ = run(rig.controller, "doctor")
    assert code == 1 and f"array {rig.array_name} does not serve" in out
    code, out, errors = run(rig.controller, "volumes")
    assert code == 1 and volume.id not in out and f"array {rig.array_name} does not answer" in errors
    rig.start()
    wait_until(lambda: run(rig.controller, "doctor")[0] == 0, 30, "doctor finds nothing any more")


def test_a_target_that_is_away_is_found_by_its_node(rig, volume):
    """tgtd is dead until its agent is back."""
    tgtd = rig.tgtd()
    rig.agents[0].kill()
    subprocess.run(["kill", "-9", str(tgtd)], check=True)
    wait_until(lambda: "reconnecting" in run(rig.nodes[0].server, "doctor")[1], 30, "the device is named")
    code, out, _ = run(rig.nodes[0].server, "doctor")
    assert code == 1 and f"portal {rig.portal} is not reached" in out
    rig.start()
    wait_until(lambda: run(rig.nodes[0].server, "doctor")[0] == 0, 60, "doctor finds nothing any more")


FUSE = "/proc/sys/fs/fuse"
# {what is wrong with the machine: (commands that make it so, what is said)}
# A socket cannot be opened as a device can.
MACHINES = {
    "no FUSE": ("mount --bind $SOCKET /dev/fuse", "kernel: /dev/fuse: cannot be opened"),
    "no loop devices": (
        "mount --bind $SOCKET /dev/loop-control",
        "kernel: /dev/loop-control: cannot be opened",
    ),
    "an old kernel": (
        "echo 5.10.0-9-amd64 > $FILE && mount --bind $FILE /proc/sys/kernel/osrelease",
        "kernel: Linux 5.10.0-9-amd64 is older",
    ),
    "a kernel that ends what waits": (
        f"mount -t tmpfs tmpfs /proc/sys/fs && mkdir {FUSE} && echo 30 > {FUSE}/default_request_timeout",
        "kernel: fs.fuse.default_request_timeout is 30 s",
    ),
}


@pytest.mark.parametrize("commands,said", MACHINES.values(), ids=MACHINES)
def test_a_fault_of_a_nodes_machine_is_found_alone(rig, volume, tmp_path, commands, said):
    """In a mount namespace of doctor's own."""
    socket = rig.nodes[0].server.socket
    doctor = f"{LUNKEEPER} doctor --endpoint=unix://{socket}"
    found = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", f"{commands} && exec {doctor}"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "SOCKET": str(socket), "FILE": str(tmp_path / "file")},
    )
    assert found.returncode == 1 and found.stdout.startswith(said), found
    assert found.stdout.count("\n") == 1, found.stdout


def test_a_certificate_that_is_gone_is_found_alone(rig):
    agent = rig.agents[0]
    file = next(pathlib.Path(word.partition("=")[2]) for word in agent.argv if word.startswith("--tls-cert="))
    away = file.rename(file.with_suffix(".away"))
    try:
        wait_until(lambda: run(agent, "doctor")[0] == 1, 30, "doctor finds something")
        code, out, _ = run(agent, "doctor")
        assert out.startswith(f"certificates: {file}: ") and out.count("\n") == 1, out
    finally:
        away.rename(file)
    wait_until(lambda: run(agent, "doctor")[0] == 0, 30, "doctor finds nothing any more")


def test_a_bundle_has_no_secret(rig):
    volume = Volume(rig, rig.nodes[0], "bundled", block=True, size=16 * MIB).create().controller_publish()
    secrets = [value for key, value in volume.publish_context.items() if "secret" in key.lower()]
    assert secrets
    for server in (rig.controller, rig.nodes[0].server, rig.agents[0]):
        code, out, _ = run(server, "support-bundle")
        assert code == 0 and json.loads(out)["version"]
        assert not [secret for secret in secrets if secret in out] and "BEGIN" not in out
    assert volume.id in run(rig.controller, "support-bundle")[1]
    volume.controller_unpublish().delete()
