"""Mesos agents that share an array: each has a cluster of its own there, and so its own disks."""

import pytest

from agent.agents import AgentRig
from harness.cleanup import wait_until
from harness.leaks import Leaks
from mesos.machine import BLOCK_BYTES, MOUNT_BYTES, Machine
from mesos.protocols import BOTH
from mesos.provider import OperationFailed
from mesos.service import CallFailed, Plugin


@pytest.fixture(scope="module")
def rig(folder, xfs_pool):
    with AgentRig(folder / "shared", xfs_pool, nodes=2, start=False) as rig:
        daemons = [*rig.agents, *(node.datapath for node in rig.nodes)]
        for daemon in daemons:
            daemon.start()
        wait_until(lambda: all(daemon.ready() for daemon in daemons), 30, rig.logs)
        yield rig


def make_machine(rig, node, protocol):
    """An agent's machine; its certificate names its cluster."""
    name = f"{node.name}-{protocol.number.replace('.', '-')}"
    certificate, key = rig.authority.issue(name, f"DNS:controller.{name}.cluster.lunkeeper.io")
    rig.certificate, rig.key, rig.arrays_file = certificate, key, rig.folder / f"{name}.json"
    rig.write_arrays(rig.entries())
    options = [
        f"--arrays={rig.arrays_file}",
        *node.options(),
        *rig.reached(),
        f"--csi-versions={protocol.number}",
    ]
    return Machine(rig, rig.folder / name / "work", plugin=Plugin(rig, name, "all", options))


@pytest.mark.parametrize("protocol", BOTH, ids=lambda protocol: f"csi-{protocol.number}")
def test_an_agent_sees_its_own_disks_alone(rig, protocol):
    leaks = Leaks(rig)
    one, other = (make_machine(rig, node, protocol) for node in rig.nodes)
    disks = {}
    for machine, profile, size in ((one, "xfs", MOUNT_BYTES), (other, "raw", BLOCK_BYTES)):
        provider = machine.start()
        assert provider.pools[profile] > size and not provider.disks
        disks[machine] = provider.create_disk(profile, size)
        provider.volumes.publish(disks[machine])
    for machine, disk in disks.items():
        machine.provider.reconcile()
        assert set(machine.provider.disks) == {disk}
    stolen = {**one.provider.disks[disks[one]], "type": "RAW", "profile": None}
    other.provider.disks[disks[one]] = stolen
    with pytest.raises(OperationFailed, match="NOT_FOUND"):
        other.provider.create_disk("xfs", volume_id=disks[one])
    del other.provider.disks[disks[one]]
    for machine, disk in disks.items():
        machine.provider.destroy_disk(disk)
        machine.close()
    assert not leaks.found()


def test_a_provider_whose_array_is_away_gives_up_and_the_next_one_comes_up(rig):
    """Mesos goes on after any answer to Probe, and ends a provider whose first ListVolumes fails."""
    machine = make_machine(rig, rig.nodes[0], BOTH[0])
    (agent,) = rig.agents
    agent.stop()
    with pytest.raises(CallFailed, match="UNAVAILABLE"):
        machine.start()
    agent.start()
    wait_until(agent.ready, 30, agent.tail)
    wait_until(lambda: comes_up(machine), 30, machine.plugin.tail)
    machine.close()


def comes_up(machine):
    try:
        return machine.start().pools["raw"] > 0
    except CallFailed:
        return False
