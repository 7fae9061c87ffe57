"""A storage local resource provider's own sequence of calls, over both protocols, with nothing in its way.

test_kill_schedules.py has what comes in its way.
"""

import contextlib
import random

import pytest

from harness import pool
from harness.cleanup import Cleanup, wait_until
from harness.csi import Client
from mesos.faults import NoFaults, ProviderKilled
from mesos.life import Life
from mesos.machine import BLOCK_BYTES, MIB, MOUNT_BYTES, PROFILES, Machine, MesosRig
from mesos.protocols import BOTH, ONE, capability
from mesos.provider import OperationFailed
from mesos.service import Service
from mesos.volumes import PUBLISHED, Volumes

PREPARE = [
    "GetPluginCapabilities",
    *["GetPluginInfo"] * 2,  # of each service
    "ControllerGetCapabilities",
    "NodeGetCapabilities",
]
UP = ["ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"]
DOWN = ["NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume"]


@pytest.fixture(scope="module", params=BOTH, ids=lambda protocol: f"csi-{protocol.number}")
def rig(request, folder, xfs_pool):
    with MesosRig(folder / f"csi-{request.param.number}", xfs_pool, [request.param]) as rig:
        rig.protocol = request.param
        yield rig


@pytest.fixture
def life(rig, request):
    """With a provider that has started, and ends clean."""
    life = Life(rig, rig.folder / request.node.name, NoFaults(), random.Random(1))
    try:
        yield life
        life.end()
    finally:
        life.machine.close()


@pytest.mark.parametrize("profile", PROFILES)
def test_the_calls_come_in_order(life, rig, profile):
    calls = life.provider.service.calls
    probes = ["Probe"] if rig.protocol is ONE else ["Probe", "Probe"]  # 1.x first, which is not there
    polls = ["ListVolumes", *["GetCapacity"] * len(PROFILES)]
    assert calls == [*probes, *PREPARE, rig.protocol.node_id_call, *polls]
    calls.clear()
    life.create("disk", profile)
    life.write("disk")
    assert calls == ["CreateVolume", *UP]
    calls.clear()
    life.verify("disk")  # it is published: nothing is asked
    life.provider.reconcile()
    assert calls == polls
    calls.clear()
    life.take_down("disk")
    life.verify("disk")
    life.destroy("disk")
    assert calls == [*DOWN, *UP, *DOWN, "DeleteVolume"]


def test_a_plugin_with_both_versions_is_driven_as_1(folder, xfs_pool):
    with MesosRig(folder / "both", xfs_pool, BOTH) as rig:
        service = Service(rig.controller, folder / "both/work")
        service.endpoint()
        assert (service.protocol, service.calls) == (ONE, ["Probe"])


def test_a_plugin_starts_where_one_has_died(life, rig):
    """Its socket is still there: Mesos removes it, others do not."""
    rig.controller.kill()
    assert rig.controller.socket.exists()
    rig.controller.start()
    client = Client(rig.controller.socket, rig.protocol.module)

    def ready():
        assert rig.controller.running(), rig.controller.tail()
        return rig.controller.socket.exists() and client.Probe(wait=True).ready.value

    wait_until(ready, 60, "the plugin is ready")
    client.close()
    life.provider.reconcile()


def test_a_disk_that_was_there_before_is_taken_and_returned(life):
    volume_id = life.make_beforehand("xfs", MOUNT_BYTES)
    life.provider.reconcile()
    assert life.provider.raw_disks() == {volume_id}
    for wrong in ("raw", "ext4-named"):  # the volume was made for another use, or another file system
        with pytest.raises(OperationFailed, match="was made"):
            life.provider.create_disk(wrong, volume_id=volume_id)
    life.create("taken", "xfs", volume_id)
    life.write("taken")
    life.verify("taken")
    life.machine.start()  # a provider knows it again
    assert life.provider.volumes.state(volume_id) == PUBLISHED
    life.verify("taken")


def test_the_list_and_the_contexts_stay_the_same(life):
    """A changed context, or a list in another order, is a changed pool to every framework."""
    names = [f"disk-{number}" for number in range(12)]
    for number, name in enumerate(names):
        life.create(name, ["xfs", "ext4", "raw"][number % 3])
    listed = life.provider.volumes.list()
    contexts = {life.disks[name]: life.provider.disks[life.disks[name]]["context"] for name in names}
    assert {volume_id: context for volume_id, _, context in listed} == contexts
    for _ in range(3):
        life.machine.plugin.stop()
        life.machine.start()
        assert life.provider.volumes.list() == listed


def test_all_disks_are_listed_in_one_answer(life):
    for number in range(300):
        life.provider.service.call(
            "CreateVolume",
            name=f"many-{number}",
            capacity_range={"required_bytes": MIB},
            volume_capabilities=[capability(block=True)],
        )
    life.provider.reconcile()  # has checked that there is no second page
    assert len(life.provider.raw_disks()) == 300


@pytest.mark.parametrize("options", [[], ["--keep-free=20"], ["--overcommit=0.5"]], ids="".join)
@pytest.mark.parametrize("protocol", BOTH, ids=lambda protocol: f"csi-{protocol.number}")
@pytest.mark.parametrize("provisioning", ["thin", "thick"])
def test_a_whole_pool_can_be_made_one_disk(folder, protocol, options, provisioning):
    """A framework may ask for all that was offered, as required and as limit."""
    name = f"whole-{protocol.number}-{provisioning}-{''.join(options)}"
    with Cleanup() as cleanup:
        small = pool.xfs_pool(folder / f"{name}-pool", cleanup, "512M")
        with MesosRig(folder / name, small, [protocol], array_options=options) as rig:
            profiles = {"all": (capability(block=True), {"provisioning": provisioning})}
            machine = Machine(rig, folder / name / "work", profiles)
            offered = machine.start().pools["all"]
            assert offered > 100 * MIB and offered % MIB == 0
            disk = machine.provider.create_disk("all", offered)
            machine.provider.reconcile()
            assert machine.provider.pools["all"] == 0 or provisioning == "thin"
            machine.provider.destroy_disk(disk)


def test_a_profile_of_another_plugin_offers_nothing(life):
    life.machine.profiles = {
        "nfs": ({**capability(), "mount": {"fs_type": "nfs"}}, {}),
        "shared": ({**capability(), "access_mode": {"mode": 5}}, {}),
    }
    assert set(life.machine.start().pools.values()) == {0}


def write_through(place, data):
    with open(place, "r+b" if place.exists() else "wb") as out:
        out.write(data)


def check_start(place, data):
    with open(place, "rb") as file:
        assert file.read(len(data)) == data


class DieAt(NoFaults):
    """The provider dies at one point, once."""

    def __init__(self, point):
        self.point = point

    def pass_point(self, name):
        if self.on and name == self.point:
            self.on, self.hits = False, 1
            raise ProviderKilled(name)


def test_an_operation_is_done_once(life):
    """Its volume has the operation's UUID for a name."""
    life.machine.faults = life.faults = DieAt("after CreateVolume")
    life.machine.start()
    life.create("disk", "xfs")
    assert life.faults.hits == 1
    assert [volume_id for volume_id, _, _ in life.provider.volumes.list()] == [life.disks["disk"]]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_reboot_leaves_the_data(life, profile):
    life.create("disk", profile)
    life.write("disk")
    life.machine.reboot()
    provider = life.machine.start()  # publishes what containers have used
    assert provider.volumes.state(life.disks["disk"]) == PUBLISHED
    assert provider.service.calls[-len(PROFILES) - 3 :][:2] == ["NodeStageVolume", "NodePublishVolume"]
    life.verify("disk")


@pytest.mark.parametrize("block", [False, True], ids=["mount", "block"])
def test_a_task_names_its_volume(life, rig, block):
    """A plugin that Mesos does not manage: no controller, no publish context, only what the task says."""
    profile, size = ("raw", BLOCK_BYTES) if block else ("xfs", MOUNT_BYTES)
    volume_id = life.make_beforehand(profile, size)
    service = Service(rig.controller, life.machine.work)
    volumes = Volumes(service, rig.folder / f"{profile}-static", life.machine.boot_id, managed=False)
    volumes.recover()
    service.calls.clear()

    def use(do):
        volumes.track_static(volume_id, life.machine.profiles[profile][0], {})
        volumes.publish(volume_id)
        target = volumes.target(volume_id)
        do(target if block else target / "data")
        volumes.unpublish(volume_id)
        assert volume_id not in volumes.states

    with contextlib.closing(service):
        use(lambda place: write_through(place, b"written by one task"))
        assert service.calls == [*UP[1:], *DOWN[:2]]
        use(lambda place: check_start(place, b"written by one task"))
