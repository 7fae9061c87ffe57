"""CSI 0.3 over real targets and devices, as its orchestrators call it; csi-sanity speaks 1.x alone.

These use nothing that 0.2 did not have, so they are clients of 0.2, too.
"""

import pathlib

import pytest

from harness import places
from harness.csi import V0, Client, code_of
from harness.leaks import Leaks
from harness.rig import Rig
from harness.volume import SIZE


@pytest.fixture(scope="module")
def rig(folder, xfs_pool):
    with Rig(folder / "v0", xfs_pool, split=True) as rig:
        yield rig


class Orchestrator:
    """One volume and one node; each step may be repeated."""

    def __init__(self, rig, name, block):
        self.controller, self.node = Client(rig.controller.socket, V0), Client(rig.nodes[0].server.socket, V0)
        mode = places.protocol(V0).VolumeCapability.AccessMode.SINGLE_NODE_WRITER
        self.capability = {"access_mode": {"mode": mode}, **({"block": {}} if block else {"mount": {}})}
        self.folder, self.name, self.block = rig.folder / name, name, block
        self.staging, self.target = self.folder / "staging", self.folder / "target"
        self.staging.mkdir(parents=True)
        # In 0.3 the target is the orchestrator's to make.
        self.target.touch() if block else self.target.mkdir()
        self.node_id = self.node.NodeGetId().node_id
        self.info = {}

    def create(self):
        self.volume = self.controller.CreateVolume(
            name=self.name, capacity_range={"required_bytes": SIZE}, volume_capabilities=[self.capability]
        ).volume

    def used(self):
        return {
            "volume_id": self.volume.id,
            "volume_capability": self.capability,
            "volume_attributes": self.volume.attributes,
        }

    def controller_publish(self):
        answer = self.controller.ControllerPublishVolume(**self.used(), node_id=self.node_id)
        self.info = answer.publish_info

    def stage(self):
        self.node.NodeStageVolume(
            **self.used(), publish_info=self.info, staging_target_path=str(self.staging)
        )

    def publish(self, target=None):
        self.node.NodePublishVolume(
            **self.used(),
            publish_info=self.info,
            staging_target_path=str(self.staging),
            target_path=str(target or self.target),
        )

    def unpublish(self):
        self.node.NodeUnpublishVolume(volume_id=self.volume.id, target_path=str(self.target))

    def unstage(self):
        self.node.NodeUnstageVolume(volume_id=self.volume.id, staging_target_path=str(self.staging))

    def controller_unpublish(self):
        self.controller.ControllerUnpublishVolume(volume_id=self.volume.id, node_id=self.node_id)

    def delete(self):
        self.controller.DeleteVolume(volume_id=self.volume.id)

    def up(self):
        for step in (self.create, self.controller_publish, self.stage, self.publish):
            twice(step)

    def down(self):
        for step in (self.unpublish, self.unstage, self.controller_unpublish):
            twice(step)

    def data(self):
        return self.target if self.block else self.target / "data"


def twice(step):
    """Orchestrators repeat a call whose answer was lost."""
    step()
    step()


@pytest.mark.parametrize("block", [False, True], ids=["mount", "block"])
def test_data_written_in_one_life_is_read_in_the_next(rig, block):
    leaks = Leaks(rig)
    volume = Orchestrator(rig, f"life-{'block' if block else 'mount'}", block)
    volume.up()
    payload = b"written over CSI 0.3".ljust(4096, b".")
    with open(volume.data(), "r+b" if block else "wb") as out:
        out.write(payload)
    other = volume.folder / "other"
    other.touch() if block else other.mkdir()
    code, text = code_of(volume.publish, other)
    assert code == "FAILED_PRECONDITION" and str(volume.target) in text, f"{code}: {text}"
    volume.down()
    assert volume.target.exists(), "what the orchestrator made is its own to remove"
    assert volume.target.is_file() if block else not list(volume.target.iterdir())

    volume.up()
    with open(volume.data(), "rb") as back:
        assert back.read(4096) == payload
    volume.down()
    twice(volume.delete)
    assert not leaks.found()


def test_without_publish_info_and_without_a_coordinator_there_is_no_grant(rig):
    volume = Orchestrator(rig, "alone", block=True)
    volume.create()
    code, text = code_of(volume.stage)
    assert code == "FAILED_PRECONDITION" and "publish_info" in text, f"{code}: {text}"
    volume.delete()


def test_a_snapshot_is_restored(rig):
    leaks = Leaks(rig)
    source = Orchestrator(rig, "source", block=True)
    source.up()
    pathlib.Path(source.target).open("r+b").write(b"before the snapshot")
    source.down()
    taken = source.controller.CreateSnapshot(name="s", source_volume_id=source.volume.id).snapshot
    states = places.protocol(V0).SnapshotStatus
    assert taken.status.type == states.READY and taken.created_at > 1_600_000_000_000_000_000

    copy = Orchestrator(rig, "copy", block=True)
    copy.create = lambda: setattr(
        copy,
        "volume",
        copy.controller.CreateVolume(
            name="copy",
            volume_capabilities=[copy.capability],
            volume_content_source={"snapshot": {"id": taken.id}},
        ).volume,
    )
    copy.up()
    assert copy.volume.content_source.snapshot.id == taken.id
    with open(copy.target, "rb") as back:
        assert back.read(19) == b"before the snapshot"
    copy.down()
    copy.delete()
    twice(lambda: source.controller.DeleteSnapshot(snapshot_id=taken.id))
    source.delete()
    assert not leaks.found()
