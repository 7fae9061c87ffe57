"""Group snapshots of volumes on several nodes, on a machine that may be too busy for one."""

import contextlib
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from harness.cleanup import wait_until
from harness.rig import Rig
from harness.volume import MIB, Volume


@contextlib.contextmanager
def volume_on_each_node(rig: Rig) -> Iterator[list[Volume]]:
    """Raw volumes of 64 MiB, which are deleted at the end."""
    made = [
        Volume(rig, node, f"of-{node.name}", block=True, size=64 * MIB).up(with_controller=True)
        for node in rig.nodes
    ]
    yield made
    for volume in made:
        volume.down(with_controller=True).delete()


def group_of(rig: Rig, volumes: Sequence[Volume], name: str) -> tuple[Any, list[pathlib.Path]]:
    """The group, and its files in the order of the volumes; None if the array says that it is too busy."""
    try:
        made = rig.controller.client.CreateVolumeGroupSnapshot(
            name=name, source_volume_ids=[volume.id for volume in volumes]
        ).group_snapshot
    except grpc.RpcError as error:
        if error.code().name != "UNAVAILABLE":
            raise
        return None, []
    ids = {snapshot.source_volume_id: snapshot.snapshot_id for snapshot in made.snapshots}
    return made, [rig.pool / "snapshots" / ids[volume.id] for volume in volumes]


def group_in_time(rig: Rig, volumes: Sequence[Volume], name: str) -> tuple[Any, list[pathlib.Path]]:
    """As group_of, however busy the machine is."""
    return wait_until(
        lambda: (made := group_of(rig, volumes, name))[0] and made, 120, f"the group {name}"
    )


def delete_group(rig: Rig, group: Any) -> None:
    rig.controller.client.DeleteVolumeGroupSnapshot(
        group_snapshot_id=group.group_snapshot_id,
        snapshot_ids=[snapshot.snapshot_id for snapshot in group.snapshots],
    )
