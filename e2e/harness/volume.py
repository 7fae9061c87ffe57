"""One volume on its way through CSI on one node, a method for each RPC. Every method may be repeated, and so may be undone twice."""

import os
import pathlib

from harness.csi import capability

MIB = 1 << 20
# The smallest file system mkfs.xfs makes is 300 MiB; the files are sparse.
SIZE = 320 * MIB


class Volume:
    """`node` may be changed between unstage and publish, to move the volume."""

    def __init__(self, rig, node, name, *, block=False, fs="xfs", size=SIZE, parameters=None, source=None,
                 mode="SINGLE_NODE_WRITER", readonly=False):
        self.rig, self.node, self.name, self.size = rig, node, name, size
        self.block, self.fs, self.readonly = block, fs, readonly
        self.capability = capability(mode, block, fs)
        self.parameters, self.source = parameters or {}, source
        self.id, self.volume_context, self.publish_context = None, {}, {}

    @property
    def staging(self):
        return self.rig.folder / f"{self.node.name}-staging" / self.name

    @property
    def target(self):
        return self.rig.folder / f"{self.node.name}-pods" / self.name / "mount"

    @property
    def controller(self):
        return self.rig.controller.client

    def create(self):
        source = {"volume_content_source": self.source} if self.source else {}
        made = self.controller.CreateVolume(name=self.name, capacity_range={"required_bytes": self.size},
                                            volume_capabilities=[self.capability], parameters=self.parameters, **source).volume
        self.id, self.volume_context = made.volume_id, dict(made.volume_context)
        return self

    def controller_publish(self):
        self.publish_context = dict(self.controller.ControllerPublishVolume(
            volume_id=self.id, node_id=self.node.id, volume_capability=self.capability, readonly=self.readonly,
            volume_context=self.volume_context).publish_context)
        return self

    def stage(self, **options):
        self.staging.mkdir(parents=True, exist_ok=True)
        self.node.client.NodeStageVolume(volume_id=self.id, publish_context=self.publish_context,
                                         staging_target_path=str(self.staging), volume_capability=self.capability,
                                         volume_context=self.volume_context, **options)
        return self

    def publish(self, target=None):
        (target or self.target).parent.mkdir(parents=True, exist_ok=True)
        self.node.client.NodePublishVolume(volume_id=self.id, publish_context=self.publish_context,
                                           staging_target_path=str(self.staging), target_path=str(target or self.target),
                                           volume_capability=self.capability, readonly=self.readonly,
                                           volume_context=self.volume_context)
        return self

    def unpublish(self, target=None):
        self.node.client.NodeUnpublishVolume(volume_id=self.id, target_path=str(target or self.target))
        return self

    def unstage(self):
        self.node.client.NodeUnstageVolume(volume_id=self.id, staging_target_path=str(self.staging))
        return self

    def controller_unpublish(self):
        self.controller.ControllerUnpublishVolume(volume_id=self.id, node_id=self.node.id)
        self.publish_context = {}
        return self

    def delete(self):
        if self.id:
            self.controller.DeleteVolume(volume_id=self.id)
        return self

    def controller_expand(self, size):
        self.size = size
        self.controller.ControllerExpandVolume(volume_id=self.id, capacity_range={"required_bytes": size},
                                               volume_capability=self.capability)
        return self

    def node_expand(self):
        self.node.client.NodeExpandVolume(volume_id=self.id, volume_path=str(self.target),
                                          staging_target_path=str(self.staging),
                                          capacity_range={"required_bytes": self.size}, volume_capability=self.capability)
        return self

    def snapshot(self, name):
        """The snapshot's id."""
        return self.controller.CreateSnapshot(name=name, source_volume_id=self.id).snapshot.snapshot_id

    def up(self, with_controller=False):
        """Created and usable at `target`."""
        self.create()
        if with_controller:
            self.controller_publish()
        return self.stage().publish()

    def down(self, with_controller=False):
        """Gone from the node; still there."""
        self.unpublish().unstage()
        if with_controller:
            self.controller_unpublish()
        return self

    def write_file(self, name, data):
        path = self.target / name
        with open(path, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        return path

    def path(self, name="data"):
        """Where a test writes: the device itself, or a file in the file system."""
        return pathlib.Path(self.target) if self.block else self.target / name

    def make_file(self, size):
        """The file at `path`, full of zeroes that are on the medium: writing over them later changes no metadata, so that a direct
        write that was acknowledged outlives the mount, without any fsync."""
        self.write_file(self.path().name, bytes(size))


def from_snapshot(snapshot_id):
    return {"snapshot": {"snapshot_id": snapshot_id}}


def from_volume(volume_id):
    return {"volume": {"volume_id": volume_id}}
