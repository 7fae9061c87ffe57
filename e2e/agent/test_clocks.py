"""Controllers whose clocks differ, and one whose clock is set while it works: time of day decides nothing."""

import time

import pytest

from agent.replicated import Leaders, ReplicatedRig
from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.processes import kill_pid
from harness.volume import MIB, Volume

HOUR = 3600
AHEAD = {"set": 0, "ahead": HOUR + HOUR // 2, "true": 0}  # the clock of the first is set again and again


@pytest.fixture(params=["set", "ahead"])
def rig(folder, xfs_pool, request):
    first = request.param
    others = {name: seconds for name, seconds in AHEAD.items() if name != first}
    with ReplicatedRig(folder / first, xfs_pool, {first: AHEAD[first], **others}, nodes=2) as rig:
        yield rig


def set_clock(rig, leading, seconds):
    """Of the controller whose clock is set, and sees that the leader still goes by the right one."""
    if leading == "set":
        rig.step("set", seconds)
    else:
        rig.set("set", seconds)


def stays_quiet(rig, leaders, leading, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert not rig.api.get("/apis/lunkeeper.io/v1alpha1/nodefences")["items"], rig.logs()
        assert leaders.names() <= {leading}, rig.logs()
        time.sleep(0.2)


def power_off(rig, node):
    worker = node.datapath.worker()
    node.server.kill()
    node.datapath.kill()
    kill_pid(worker)
    rig.lose_kubelet(node)


@pytest.mark.timeout(600)
def test_a_node_is_failed_over_once_whatever_the_controllers_clocks_say(rig):
    spare, node = rig.nodes
    leading = next(iter(rig.controllers))
    with Leaders(rig) as leaders:
        volume = rig.up(Volume(rig, node, "data", block=True, size=16 * MIB))
        writer = BlockChecker(volume, threads=2).start()
        for seconds in (HOUR, 0, 2 * HOUR, HOUR):
            set_clock(rig, leading, seconds)
            stays_quiet(rig, leaders, leading, 5)
            writer.wait_for_writes(100)
            assert writer.running()
        power_off(rig, node)
        set_clock(rig, leading, 0)
        pod = f"/api/v1/namespaces/db/pods/{volume.name}"
        wait_until(
            lambda: rig.api.get(pod)["spec"]["nodeName"] == spare.name,
            90,
            lambda: f"its pod runs elsewhere\n{rig.logs()}",
            pause=0.2,
        )
        assert leaders.last() == leading
        wait_until(lambda: not writer.running(), 30, "the writer of the dead node ends")
        volume.node = spare
        volume.stage().publish()
        writer.verify(volume)
        rig.controllers[leading].kill()
        wait_until(lambda: leaders.last() != leading, 30, lambda: f"another one leads\n{rig.logs()}")
    assert not leaders.overlaps()
