"""The commands for the person on call, against a real controller, node and agent."""

import json
import subprocess

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


def listed(rig, what):
    code, out, errors = run(rig.controller, what, "--output=json")
    assert code == 0, errors
    return json.loads(out)


def test_lists_have_what_is_there(rig, volume):
    (row,) = (row for row in listed(rig, "volumes") if row["id"] == volume.id)
    assert row["size_bytes"] == 16 * MIB and row["nodes"] == [rig.nodes[0].id]
    assert row["claim"] is None and row["array"] == rig.array_name
    (node,) = listed(rig, "nodes")
    assert node["id"] == rig.nodes[0].id and node["volumes"] == [volume.id] and node["sessions"] == 1
    (array,) = listed(rig, "arrays")
    assert array["serves"] is True and array["grants"] == 1 and array["available_bytes"] > 0
    snapshot = rig.controller.client.CreateSnapshot(name="tools", source_volume_id=volume.id).snapshot
    (row,) = listed(rig, "snapshots")
    assert row["id"] == snapshot.snapshot_id and row["volume"] == volume.id and row["ready"] is True
    rig.controller.client.DeleteSnapshot(snapshot_id=snapshot.snapshot_id)


def test_doctor_finds_nothing_where_nothing_is_wrong(rig, volume):
    for server in (rig.controller, rig.nodes[0].server, rig.agents[0]):
        assert run(server, "doctor") == (0, "nothing is wrong with the server\n", "")


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
