"""The array on a machine of its own, behind `lunkeeper array`; the controller reaches it over mutual TLS."""

import os
import re
import signal
import urllib.error

import grpc
import pytest

from agent.agents import AgentRig, page
from harness.backup import allocated, ranges_of
from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.csi import code_of
from harness.leaks import Leaks
from harness.volume import MIB, SIZE, Volume, from_volume


@pytest.fixture(scope="module")
def rig(folder, xfs_pool):
    with AgentRig(folder / "one", xfs_pool) as rig:
        yield rig


def when_back(call):
    """Repeats a call while the agent is away."""

    def done():
        code, text = code_of(call)
        assert code in ("OK", "UNAVAILABLE"), f"{code}: {text}"
        return code == "OK"

    wait_until(done, 30, "the agent is reached again")


def test_a_volume_lives_while_its_agent_dies_at_every_turn(rig):
    leaks, agent = Leaks(rig), rig.agents[0]

    def and_agent_dies(call):
        agent.kill()
        code, text = code_of(call)
        assert code == "UNAVAILABLE" and f"array {rig.array_name} at {agent.address}" in text, text
        rig.start()
        when_back(call)

    volume = Volume(rig, rig.nodes[0], "remote", fs="xfs")
    and_agent_dies(volume.create)
    and_agent_dies(volume.controller_publish)
    volume.stage().publish()
    volume.make_file(16 * MIB)
    checker = BlockChecker(volume).start()
    checker.wait_for_writes(500)
    agent.kill()
    checker.wait_for_writes(500)  # nobody needs the agent for I/O
    rig.start()
    checker.wait_for_writes(500)
    and_agent_dies(lambda: volume.controller_expand(SIZE + 64 * MIB))
    when_back(volume.node_expand)  # a read that meets the growth may fail, and says so
    checker.stop_good()
    clone = Volume(
        rig, rig.nodes[0], "remote-clone", fs="xfs", size=SIZE + 64 * MIB, source=from_volume(volume.id)
    )
    and_agent_dies(clone.create)
    volume.unpublish().unstage()
    and_agent_dies(volume.controller_unpublish)
    and_agent_dies(clone.delete)
    and_agent_dies(volume.delete)
    wait_until(lambda: not leaks.found(), 5, leaks.found)


def test_a_list_of_blocks_breaks_off_with_its_agent_and_goes_on(rig):
    volume = Volume(rig, rig.nodes[0], "listed", block=True, size=128 * MIB).up(with_controller=True)
    with open(volume.target, "r+b", buffering=0) as device:
        for offset in range(0, volume.size, 8192):
            os.pwrite(device.fileno(), b"x" * 4096, offset)
        os.fsync(device.fileno())
    snapshot, client = volume.snapshot("listed"), rig.controller.client
    whole = allocated(client, snapshot)
    assert len(whole) == volume.size // 8192  # four of the agent's pages

    # More messages than a connection takes before they are read, so the last page is not asked for yet.
    messages = client.stream("GetMetadataAllocated", snapshot_id=snapshot, max_results=1)
    found = ranges_of([next(messages)])
    rig.agents[0].kill()
    with pytest.raises(grpc.RpcError) as broken:
        for message in messages:
            found += ranges_of([message])
    assert broken.value.code().name == "UNAVAILABLE"
    assert found == whole[: len(found)] and len(found) < len(whole)
    rig.start()
    when_back(lambda: client.GetSnapshot(snapshot_id=snapshot))
    assert found + allocated(client, snapshot, offset=sum(found[-1])) == whole
    client.DeleteSnapshot(snapshot_id=snapshot)
    volume.down(with_controller=True).delete()


def test_a_secret_is_in_no_log(rig):
    volume = Volume(rig, rig.nodes[0], "secret", block=True, size=16 * MIB).create().controller_publish()
    secrets = [value for key, value in volume.publish_context.items() if "secret" in key.lower()]
    assert secrets and all(len(secret) >= 12 for secret in secrets)
    volume.controller_unpublish().delete()
    for log in rig.folder.glob("*.log"):
        assert not any(secret in log.read_text(errors="replace") for secret in secrets), log


def test_the_agent_counts_its_calls_and_is_ready(rig):
    rig.controller.client.ListVolumes()
    agent = rig.agents[0]
    assert page(agent.metrics_port, "/readyz") == "ready\n"
    assert page(agent.metrics_port, "/healthz") == "alive\n"
    metrics = page(agent.metrics_port, "/metrics")
    assert 'method="lunkeeper.array.v1.ArrayService/ListVolumes"' in metrics
    assert "# TYPE lunkeeper_tgtd_deaths_total counter\n" in metrics
    well = [line for line in metrics.split("\n") if line.startswith("lunkeeper_tgtd_well{")]
    assert len(well) == 1 and 'tgtd="0"' in well[0] and float(well[0].split()[-1]) == 1, well
    assert re.search(r'^lunkeeper_tgtd_grants\{array="\w+",tgtd="0"\} \d+$', metrics, re.MULTILINE), metrics
    for what in ("refused_logins", "ended_connections"):
        assert f"# TYPE lunkeeper_array_{what}_total counter\n" in metrics


@pytest.mark.timeout(120)
def test_an_agent_whose_tgtd_hangs_is_not_ready_and_says_so(rig):
    agent = rig.agents[0]
    tgtd = agent.tgtd()

    def ready():
        try:
            return 200, page(agent.metrics_port, "/readyz")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def well():
        lines = page(agent.metrics_port, "/metrics").split("\n")
        return float(next(line for line in lines if line.startswith("lunkeeper_tgtd_well{")).split()[-1])

    os.kill(tgtd, signal.SIGSTOP)
    try:
        wait_until(lambda: ready()[0] == 503, 40, lambda: f"/readyz says no: {ready()}")
        assert "tgtd" in ready()[1]
        wait_until(lambda: well() == 0, 10, "the metric says so, too")
    finally:
        os.kill(tgtd, signal.SIGCONT)
    wait_until(lambda: ready()[0] == 200, 40, lambda: f"/readyz says yes: {ready()}")
    wait_until(lambda: well() == 1, 10, "the metric says so, too")


def test_an_agent_that_is_told_to_stop_does_so(rig):
    agent = rig.agents[0]
    assert agent.stop(seconds=10) == 0
    rig.start()
    when_back(rig.controller.client.ListVolumes)
