"""Every field of every request: absent, empty, unknown, too long, negative, or with a path trick.

The answer has the code that the specification names and a text that explains it, and nothing has changed.
The same for CSI 0.3.
"""

import os

import pytest

from bad_input.expected import IGNORED, TABLE, TABLE_V0, expected
from bad_input.sweep import cases
from harness import store
from harness.csi import V0, V1, Client, capability, code_of
from harness.leaks import mounts, rows, targets
from harness.rig import Rig
from harness.volume import SIZE, Volume

NO_FIELDS = {
    "GetPluginInfo",
    "GetPluginCapabilities",
    "Probe",
    "ControllerGetCapabilities",
    "GroupControllerGetCapabilities",
    "NodeGetCapabilities",
    "NodeGetInfo",
    "NodeGetId",
    "NodeGetStorageHealth",
}
pytestmark = pytest.mark.store
TABLES = {V0: TABLE_V0, V1: TABLE}
# Fields of 1.x as 0.3 calls them.
NAMES_V0 = {
    "volume_context": "volume_attributes",
    "publish_context": "publish_info",
}


class World:
    """A published volume, an idle one, a snapshot and a group, which the good requests name."""

    def __init__(self, rig):
        self.rig, self.client = rig, rig.controller.client
        self.clients = {V1: self.client, V0: Client(rig.controller.socket, V0)}
        self.used = Volume(rig, rig.nodes[0], "used").up(with_controller=True)
        self.idle = Volume(rig, rig.nodes[0], "idle", size=SIZE).create()
        self.snapshot = self.used.snapshot("snapshot")
        self.later_snapshot = self.used.snapshot("later-snapshot")
        self.group = {}
        if not store.ON_CEPH:
            self.take_group()
        self.new = Volume(rig, rig.nodes[0], "new")

    def take_group(self):
        taken = self.client.CreateVolumeGroupSnapshot(
            name="group", source_volume_ids=[self.used.id]
        ).group_snapshot
        members = [snapshot.snapshot_id for snapshot in taken.snapshots]
        self.group = {"group_snapshot_id": taken.group_snapshot_id, "snapshot_ids": members}

    def good(self, method, version=V1):
        """A request that would succeed. All fields are set for which there are bad values."""
        fields = self.fields(method)
        if version == V0:
            fields = {NAMES_V0.get(name, name): value for name, value in fields.items()}
            if "volume_content_source" in fields:
                fields["volume_content_source"] = {"snapshot": {"id": self.snapshot}}
        return self.clients[version].methods[method][0](**fields)

    def fields(self, method):
        """Of a good request in 1.x."""
        return {**self.fields_at_controller(), **self.fields_on_node()}[method]

    def fields_at_controller(self):
        used, idle, node = self.used, self.idle, self.rig.nodes[0].id
        one = {"volume_id": idle.id, "volume_capability": capability(), "volume_context": idle.volume_context}
        size = {"capacity_range": {"required_bytes": SIZE, "limit_bytes": SIZE}}
        paging = {"max_entries": 1}
        return {
            "CreateVolume": {
                "name": "new",
                **size,
                "volume_capabilities": [capability()],
                "volume_content_source": {"snapshot": {"snapshot_id": self.snapshot}},
            },
            "DeleteVolume": {"volume_id": idle.id},
            "ControllerPublishVolume": {**one, "node_id": node},
            "ControllerUnpublishVolume": {"volume_id": idle.id, "node_id": node},
            "ValidateVolumeCapabilities": {"volume_id": idle.id, "volume_capabilities": [capability()]},
            "ListVolumes": paging,
            "ControllerListVolumeHealth": paging,
            "ControllerGetVolumeHealth": {"volume_id": idle.id},
            "GetCapacity": {"volume_capabilities": [capability()]},
            "CreateSnapshot": {"name": "new", "source_volume_id": idle.id},
            "DeleteSnapshot": {"snapshot_id": self.snapshot},
            "ListSnapshots": {**paging, "source_volume_id": used.id},
            "GetSnapshot": {"snapshot_id": self.snapshot},
            "GetMetadataAllocated": {"snapshot_id": self.snapshot, "max_results": 1},
            "GetMetadataDelta": {
                "base_snapshot_id": self.snapshot,
                "target_snapshot_id": self.later_snapshot,
                "max_results": 1,
            },
            "CreateVolumeGroupSnapshot": {"name": "new", "source_volume_ids": [idle.id]},
            "DeleteVolumeGroupSnapshot": self.group,
            "GetVolumeGroupSnapshot": self.group,
            "ControllerExpandVolume": {"volume_id": idle.id, **size, "volume_capability": capability()},
            "ControllerModifyVolume": {"volume_id": idle.id, "mutable_parameters": {"maxIops": "200"}},
            "ControllerGetVolume": {"volume_id": idle.id},
        }

    def fields_on_node(self):
        used = self.used
        on_node = {
            "staging_target_path": str(used.staging),
            "publish_context": used.publish_context,
            "volume_id": used.id,
            "volume_capability": capability(),
            "volume_context": used.volume_context,
        }
        size = {"capacity_range": {"required_bytes": SIZE, "limit_bytes": SIZE}}
        return {
            "NodeStageVolume": on_node,
            "NodeUnstageVolume": {"volume_id": used.id, "staging_target_path": str(used.staging)},
            "NodePublishVolume": {**on_node, "target_path": str(used.target)},
            "NodeUnpublishVolume": {"volume_id": used.id, "target_path": str(used.target)},
            "NodeGetVolumeStats": {
                "volume_id": used.id,
                "volume_path": str(used.target),
                "staging_target_path": str(used.staging),
            },
            "NodeGetVolumeHealth": {
                "volume_id": used.id,
                "volume_publish_path": str(used.target),
                "staging_target_path": str(used.staging),
            },
            "NodeExpandVolume": {
                "volume_id": used.id,
                "volume_path": str(used.target),
                **size,
                "staging_target_path": str(used.staging),
                "volume_capability": capability(),
            },
        }

    def state(self):
        return {
            "rows": rows(self.rig),
            "targets": targets(self.rig),
            "mounts": mounts(self.rig.folder),
            "nowhere": os.path.exists("/nowhere"),
            "etc": os.path.exists("/etc/lunkeeper"),
        }


@pytest.fixture(scope="module")
def world(folder, xfs_pool):
    with Rig(folder / "sweep", xfs_pool) as rig:
        yield World(rig)


def methods():
    """(version, name) of each method with fields."""
    from harness import places

    for version in (V1, V0):
        services = places.protocol(version).DESCRIPTOR.services_by_name
        groups = () if store.ON_CEPH else ("GroupController",)  # they are refused there
        for service in ("Controller", *groups, "SnapshotMetadata", "Node"):
            for method in services[service].methods if service in services else ():
                if method.name not in NO_FIELDS:
                    yield version, method.name


def name_in_v1(name):
    for new, old in NAMES_V0.items():
        name = name.replace(f".{old}", f".{new}")
    return name.replace(".snapshot.id=", ".snapshot.snapshot_id=")


def confirms(response):
    """Of ValidateVolumeCapabilities."""
    is_v0 = "supported" in response.DESCRIPTOR.fields_by_name
    return response.supported if is_v0 else response.HasField("confirmed")


@pytest.mark.parametrize("version, method", methods())
def test_bad_values_of_every_field(world, version, method):
    good, call, before = world.good(method, version), getattr(world.clients[version], method), world.state()
    wrong, tried = [], 0
    for case in cases(method, good):
        codes = expected(name_in_v1(case.name), TABLES[version])
        if codes is IGNORED:
            continue
        tried += 1
        code, text = code_of(call, case.request, seconds=20)
        if code == "OK" and method == "ValidateVolumeCapabilities" and confirms(call(case.request)):
            wrong.append(f"{case.name}: confirmed")
        if code not in codes:
            wrong.append(f"{case.name}: {code} ({text}), not {' or '.join(sorted(codes))}")
        elif code != "OK" and len(text) < 15:
            wrong.append(f"{case.name}: {code} with hardly a word: {text!r}")
        after = world.state()
        if after != before:
            wrong.append(
                f"{case.name}: {code}, and it changed {[key for key in before if before[key] != after[key]]}"
            )
            before = after
    assert tried > 0
    assert not wrong, "\n".join(wrong)


def test_a_symlink_or_a_file_in_the_place_of_a_folder_is_refused(world, folder):
    (folder / "real").mkdir()
    (folder / "link").symlink_to(folder / "real")
    (folder / "file").write_text("somebody's")
    client, used, idle = world.client, world.used, world.idle
    for name in ("link", "file"):
        path = str(folder / name)
        code, text = code_of(
            client.NodeStageVolume,
            volume_id=idle.id,
            staging_target_path=path,
            volume_capability=capability(),
            volume_context=idle.volume_context,
        )
        assert code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION") and path in text, (
            f"stage at a {name}: {code} {text}"
        )
        code, text = code_of(
            client.NodePublishVolume,
            volume_id=used.id,
            staging_target_path=str(used.staging),
            target_path=path,
            volume_capability=capability(),
            publish_context=used.publish_context,
        )
        assert code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION") and path in text, (
            f"publish at a {name}: {code} {text}"
        )
    assert (folder / "file").read_text() == "somebody's"
    assert (folder / "link").is_symlink() and not mounts(folder / "real")


def test_the_sweep_bites(world):
    """The cases include known bad values."""
    bad = {case.name for case in cases("CreateVolume", world.good("CreateVolume"))}
    assert {
        "CreateVolume.name=absent",
        "CreateVolume.capacity_range.required_bytes=negative",
        "CreateVolume.volume_capabilities.0.mount.fs_type=unknown",
    } <= bad
    bad = {case.name for case in cases("NodeStageVolume", world.good("NodeStageVolume", V0))}
    assert "NodeStageVolume.volume_capability.access_mode.mode=unknown" in bad
    assert not any("_secrets" in name for name in bad)
