"""One volume on one node, with a method for each RPC of CSI. Every method may be repeated."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import grpc

from harness.cleanup import wait_until
from harness.csi import Client, capability
from harness.rig import Node, Rig

MIB = 1 << 20
# The smallest file system mkfs.xfs makes is 300 MiB; the files are sparse.
SIZE = 320 * MIB

Source = dict[str, dict[str, str]]  # a VolumeContentSource


class Volume:
    """`node` may be changed between unstage and publish, to move the volume."""

    def __init__(
        self,
        rig: Rig,
        node: Node,
        name: str,
        *,
        block: bool = False,
        fs: str = "xfs",
        size: int = SIZE,
        parameters: Mapping[str, str] | None = None,
        mutable_parameters: Mapping[str, str] | None = None,
        source: Source | None = None,
        mode: str = "SINGLE_NODE_WRITER",
        readonly: bool = False,
    ) -> None:
        self.rig, self.node, self.name, self.size = rig, node, name, size
        self.block, self.fs, self.readonly = block, fs, readonly
        self.capability = capability(mode, block, fs)
        self.parameters, self.source = parameters or {}, source
        self.mutable_parameters = mutable_parameters or {}
        self.id = ""  # until it is created
        self.volume_context: dict[str, str] = {}
        self.publish_context: dict[str, str] = {}

    @property
    def staging(self) -> Path:
        return self.rig.folder / f"{self.node.name}-staging" / self.name

    @property
    def target(self) -> Path:
        return self.rig.folder / f"{self.node.name}-pods" / self.name / "mount"

    @property
    def controller(self) -> Client:
        return self.rig.controller.client

    def create(self) -> Self:
        source = {"volume_content_source": self.source} if self.source else {}
        made = self.controller.CreateVolume(
            name=self.name,
            capacity_range={"required_bytes": self.size},
            volume_capabilities=[self.capability],
            parameters=self.parameters,
            mutable_parameters=self.mutable_parameters,
            **source,
        ).volume
        self.id, self.volume_context = made.volume_id, dict(made.volume_context)
        return self

    def controller_publish(self) -> Self:
        self.publish_context = dict(
            self.controller.ControllerPublishVolume(
                volume_id=self.id,
                node_id=self.node.id,
                volume_capability=self.capability,
                readonly=self.readonly,
                volume_context=self.volume_context,
            ).publish_context
        )
        return self

    def stage(self, **options: object) -> Self:
        self.staging.mkdir(parents=True, exist_ok=True)
        self.node.client.NodeStageVolume(
            volume_id=self.id,
            publish_context=self.publish_context,
            staging_target_path=str(self.staging),
            volume_capability=self.capability,
            volume_context=self.volume_context,
            **options,
        )
        return self

    def publish(self, target: Path | None = None) -> Self:
        (target or self.target).parent.mkdir(parents=True, exist_ok=True)
        self.node.client.NodePublishVolume(
            volume_id=self.id,
            publish_context=self.publish_context,
            staging_target_path=str(self.staging),
            target_path=str(target or self.target),
            volume_capability=self.capability,
            readonly=self.readonly,
            volume_context=self.volume_context,
        )
        return self

    def unpublish(self, target: Path | None = None) -> Self:
        self.node.client.NodeUnpublishVolume(volume_id=self.id, target_path=str(target or self.target))
        return self

    def unstage(self, **options: object) -> Self:
        self.node.client.NodeUnstageVolume(
            volume_id=self.id, staging_target_path=str(self.staging), **options
        )
        return self

    def controller_unpublish(self) -> Self:
        self.controller.ControllerUnpublishVolume(volume_id=self.id, node_id=self.node.id)
        self.publish_context = {}
        return self

    def delete(self) -> Self:
        if self.id:
            self.controller.DeleteVolume(volume_id=self.id)
        return self

    def controller_expand(self, size: int) -> Self:
        self.size = size
        self.controller.ControllerExpandVolume(
            volume_id=self.id, capacity_range={"required_bytes": size}, volume_capability=self.capability
        )
        return self

    def modify(self, **parameters: str) -> Self:
        self.controller.ControllerModifyVolume(volume_id=self.id, mutable_parameters=parameters)
        return self

    def node_expand(self) -> Self:
        self.node.client.NodeExpandVolume(
            volume_id=self.id,
            volume_path=str(self.target),
            staging_target_path=str(self.staging),
            capacity_range={"required_bytes": self.size},
            volume_capability=self.capability,
        )
        return self

    def snapshot(self, name: str) -> str:
        """The snapshot's id, when it has been copied, on a busy machine too."""

        def made() -> str | None:
            try:
                answer = self.controller.CreateSnapshot(name=name, source_volume_id=self.id)
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.ABORTED:
                    return None
                raise
            return str(answer.snapshot.snapshot_id)

        return str(wait_until(made, 60, lambda: f"snapshot {name} is copied", pause=0.5))

    def up(self, with_controller: bool = False) -> Self:
        """Created and usable at `target`."""
        self.create()
        if with_controller:
            self.controller_publish()
        return self.stage().publish()

    def down(self, with_controller: bool = False) -> Self:
        """Gone from the node; still there."""
        self.unpublish().unstage()
        if with_controller:
            self.controller_unpublish()
        return self

    def write_file(self, name: str, data: bytes) -> Path:
        path = self.target / name
        with open(path, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        return path

    def path(self, name: str = "data") -> Path:
        """Where a test writes: the device itself, or a file in the file system."""
        return self.target if self.block else self.target / name

    def make_file(self, size: int) -> None:
        """Makes the file at `path`, full of zeroes that are on the medium.

        Overwriting them changes no metadata, so an acknowledged direct write is durable without fsync.
        """
        self.write_file(self.path().name, bytes(size))


def from_snapshot(snapshot_id: str) -> Source:
    return {"snapshot": {"snapshot_id": snapshot_id}}


def from_volume(volume_id: str) -> Source:
    return {"volume": {"volume_id": volume_id}}
