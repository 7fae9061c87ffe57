"""Controllers and a storage host whose clocks differ, or are set while they work: it decides nothing."""

import time

import pytest

from agent.agents import AgentRig
from agent.replicated import Leaders, ReplicatedRig
from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.clock import build_clock, clock_variables
from harness.clock import set_clock as set_to
from harness.faults import repeat
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


class ClockedHost(AgentRig):
    """Its storage host, the agent and its tgtd, has a time of day of its own."""

    def make_controller(self, array):
        controller = super().make_controller(array)
        library, self.clock = self.folder / "clock.so", self.folder / "host.clock"
        build_clock(library)
        set_to(self.clock, 0)
        self.agents[0].environment |= clock_variables(library, self.clock)
        return controller


@pytest.fixture
def host(folder, xfs_pool):
    with ClockedHost(folder / "host", xfs_pool, nodes=2) as rig:
        yield rig


@pytest.mark.timeout(300)
def test_a_storage_host_whose_clock_is_set_serves_fences_and_frees_as_ever(host):
    node, other = host.nodes
    volume = Volume(host, node, "data", block=True, size=16 * MIB).up(with_controller=True)
    writer = BlockChecker(volume, threads=2).start()
    for number, seconds in enumerate((2 * HOUR, 0, -HOUR, 2 * HOUR)):
        set_to(host.clock, seconds)
        began = time.monotonic()
        mover = Volume(host, other, f"mover-{number}", block=True, size=16 * MIB).up(with_controller=True)
        snapshot = mover.snapshot(f"of-{number}")
        host.fence(other.id, [mover.id])
        mover.node = node
        mover.controller_publish().stage().publish().down(with_controller=True)
        mover.node = other
        repeat(lambda: mover.down(with_controller=True), 30)  # its device fails as the first call looks at it
        host.unfence(other.id)
        mover.controller.DeleteSnapshot(snapshot_id=snapshot)
        mover.delete()
        assert time.monotonic() - began < 60
        writer.wait_for_writes(100)
        assert writer.running()
    kill_pid(host.agents[0].tgtd())
    set_to(host.clock, 0)
    writer.wait_for_writes(1000)
    writer.stop_good()
    writer.verify()
