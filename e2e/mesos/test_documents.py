"""docs/mesos.md: its examples are what Mesos reads, and its profiles make disks."""

import json
import re
import subprocess

import pytest

from harness import docs, places
from mesos.machine import MIB, Machine, MesosRig
from mesos.protocols import BOTH

MODES = places.protocol("csi.v1.csi_pb2").VolumeCapability.AccessMode.Mode


def profiles():
    """As the profile adaptor hands them to the provider: {name: (capability, parameters)}."""
    matrix = json.loads(docs.example("json", "profile_matrix"))["profile_matrix"]
    return {name: (capability_of(profile), profile["create_parameters"]) for name, profile in matrix.items()}


def capability_of(profile):
    written = profile["volume_capabilities"]
    mode = MODES.Value(written["access_mode"]["mode"])
    return {**written, "access_mode": {"mode": mode}}


def test_the_plugin_knows_its_options():
    provider = json.loads(docs.example("json", "org.apache.mesos.rp.local.storage"))
    plugin = provider["storage"]["plugin"]
    (container,) = plugin["containers"]
    assert container["services"] == ["CONTROLLER_SERVICE", "NODE_SERVICE"]
    command = container["command"]["value"]
    shown = subprocess.run(
        [places.LUNKEEPER, "serve", "--help"], check=True, capture_output=True, text=True
    ).stdout
    for option in [*re.findall(r"--[a-z0-9-]+", command), "--csi-versions"]:
        assert option in shown, option
    selectors = json.loads(docs.example("json", "profile_matrix"))["profile_matrix"].values()
    assert {entry["csi_plugin_type_selector"]["plugin_type"] for entry in selectors} == {plugin["type"]}


@pytest.mark.parametrize("protocol", BOTH, ids=lambda protocol: f"csi-{protocol.number}")
def test_the_profiles_make_disks(folder, xfs_pool, protocol):
    name = f"documented-{protocol.number}"
    with MesosRig(folder / name, xfs_pool, [protocol]) as rig:
        machine = Machine(rig, folder / name / "work", profiles())
        provider = machine.start()
        for profile in provider.profiles:
            assert provider.pools[profile] > 0
            disk = provider.create_disk(profile, 320 * MIB)
            provider.volumes.publish(disk)
            provider.destroy_disk(disk)
        machine.close()
