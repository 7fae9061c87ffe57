"""What the answer to each bad request must be: the codes of the CSI specification's error tables, by pattern
of the case's name.

The first pattern that matches counts. There is more than one code where the specification leaves the choice.
IGNORED: the value is good or has no meaning there, so the call is not made.
"""

import fnmatch

IGNORED = None
INVALID = {"INVALID_ARGUMENT"}
ABSENT = {"NOT_FOUND"}

TABLE = [
    # Deleting and undoing succeed when the thing does not exist. An id of another form names nothing.
    ("Delete*.*_id=absent", INVALID),
    ("Delete*.*_id=*", {"OK", "INVALID_ARGUMENT"}),
    ("ControllerUnpublishVolume.volume_id=absent", INVALID),
    ("ControllerUnpublishVolume.volume_id=unknown", {"OK", "NOT_FOUND"}),
    ("ControllerUnpublishVolume.node_id=absent", IGNORED),  # from every node
    ("ControllerUnpublishVolume.node_id=*", {"OK", "INVALID_ARGUMENT", "NOT_FOUND"}),
    ("ControllerUnpublishVolume.volume_id=*", {"OK", "INVALID_ARGUMENT", "NOT_FOUND"}),
    # Listings: an empty filter matches all; a filter without a match gives an empty list.
    ("List*.starting_token=absent", IGNORED),
    ("List*.starting_token=*", {"ABORTED", "INVALID_ARGUMENT"}),
    ("ControllerList*.starting_token=absent", IGNORED),
    ("ControllerList*.starting_token=*", {"ABORTED", "INVALID_ARGUMENT"}),
    ("*List*.max_entries=negative", INVALID),
    ("*List*.max_entries=huge", {"OK"}),
    ("ListSnapshots.*_id=absent", IGNORED),
    ("ListSnapshots.*_id=*", {"OK", "INVALID_ARGUMENT"}),
    ("GetCapacity.volume_capabilities*=absent", IGNORED),
    ("GetCapacity.parameters=*", INVALID),
    ("GetCapacity.accessible_topology*", {"OK", "INVALID_ARGUMENT"}),
    # Capacity.
    ("CreateVolume.capacity_range=absent", IGNORED),  # any size will do
    ("CreateVolume.capacity_range=empty", IGNORED),
    ("NodeExpandVolume.capacity_range=*", IGNORED),  # as large as the device is
    ("*.capacity_range=absent", INVALID),
    ("*.capacity_range=empty", INVALID),
    ("*.capacity_range.*=negative", {"INVALID_ARGUMENT", "OUT_OF_RANGE"}),
    ("*.capacity_range.required_bytes=huge", {"OUT_OF_RANGE", "INVALID_ARGUMENT"}),
    ("*.capacity_range.limit_bytes=huge", IGNORED),
    # Capabilities. A plugin does not confirm an unknown one, or has no capacity for it.
    ("ValidateVolumeCapabilities.*.fs_type=absent", IGNORED),
    ("ValidateVolumeCapabilities.*.fs_type=*", {"INVALID_ARGUMENT", "OK"}),
    ("GetCapacity.*.fs_type=absent", IGNORED),
    ("GetCapacity.*.fs_type=*", {"INVALID_ARGUMENT", "OK"}),
    ("*.volume_capability.mount.fs_type=absent", IGNORED),
    ("*.volume_capabilities.0.mount.fs_type=absent", IGNORED),
    ("*.mount.mount_flags=absent", IGNORED),
    ("Node*.mount.mount_flags=unknown", INVALID),  # only what is known to be harmless is passed on
    ("Node*.mount.mount_flags=path-trick", INVALID),
    ("*.mount.mount_flags=unknown", IGNORED),  # the node decides
    ("*.mount.mount_flags=path-trick", IGNORED),
    ("*.mount.volume_mount_group=*", IGNORED),
    ("*.mount=empty", IGNORED),  # a mount with everything by default
    ("*.block=*", IGNORED),  # another good request, or the oneof removed, which `mount=absent` tests
    ("NodeExpandVolume.volume_capability=absent", IGNORED),
    ("ControllerExpandVolume.volume_capability=absent", IGNORED),
    ("*.volume_capability*", INVALID),
    ("*.volume_capabilities*", INVALID),
    ("*.volume_context=*", IGNORED),  # orchestrators may add to it
    ("*.parameters=*", INVALID),
    ("*.mutable_parameters=*", INVALID),
    ("*.volume_content_source=absent", IGNORED),
    ("*.volume_content_source=empty", INVALID),
    ("*.volume_content_source.snapshot=*", INVALID),
    ("*.volume_content_source.volume=absent", IGNORED),
    ("*.volume_content_source.volume=empty", INVALID),
    ("*.accessibility_requirements=*", IGNORED),
    ("*.exclude_attached*", IGNORED),
    # The node.
    ("*.publish_context=unknown", IGNORED),
    ("*.publish_context=too-long", IGNORED),
    ("NodePublishVolume.staging_target_path=absent", {"FAILED_PRECONDITION", "INVALID_ARGUMENT"}),
    (
        "NodePublishVolume.staging_target_path=unknown",
        {"FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND"},
    ),
    (
        "NodePublishVolume.target_path=unknown",
        {"FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND", "INTERNAL"},
    ),
    ("NodeStageVolume.staging_target_path=unknown", {"FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND"}),
    (
        "NodeUnstageVolume.staging_target_path=unknown",
        {"OK", "FAILED_PRECONDITION"},
    ),  # it is in use elsewhere
    ("NodeUnpublishVolume.target_path=unknown", {"OK"}),
    ("NodeGetVolumeHealth.*_path=absent", IGNORED),  # the device says how the volume is
    ("NodeGetVolumeHealth.*_path=unknown", IGNORED),
    ("NodeGetVolumeStats.staging_target_path=absent", IGNORED),
    ("NodeGetVolumeStats.staging_target_path=unknown", IGNORED),
    ("NodeExpandVolume.staging_target_path=absent", IGNORED),
    ("NodeExpandVolume.staging_target_path=unknown", IGNORED),
    ("Node*.volume_path=absent", INVALID),
    ("Node*.volume_path=too-long", INVALID),
    (
        "Node*.volume_path=*",
        {"INVALID_ARGUMENT", "NOT_FOUND"},
    ),  # csi-sanity wants NOT_FOUND for a relative one
    ("Node*_path=*", INVALID),
    # Another volume is mounted at the path that is named.
    ("NodeUnstageVolume.volume_id=unknown", {"NOT_FOUND", "FAILED_PRECONDITION"}),
    ("NodeUnpublishVolume.volume_id=unknown", {"NOT_FOUND", "FAILED_PRECONDITION"}),
    # The publish context is another volume's.
    ("NodeStageVolume.volume_id=unknown", {"NOT_FOUND", "FAILED_PRECONDITION", "INVALID_ARGUMENT"}),
    ("NodePublishVolume.volume_id=unknown", {"NOT_FOUND", "FAILED_PRECONDITION", "INVALID_ARGUMENT"}),
    ("Node*.volume_id=unknown", {"NOT_FOUND", "FAILED_PRECONDITION"}),
    # Groups. A list of members that differs from the group's is refused.
    ("CreateVolumeGroupSnapshot.name=unknown", IGNORED),
    ("CreateVolumeGroupSnapshot.source_volume_ids=absent", INVALID),
    ("CreateVolumeGroupSnapshot.source_volume_ids=unknown", ABSENT),
    ("CreateVolumeGroupSnapshot.source_volume_ids=*", {"INVALID_ARGUMENT", "NOT_FOUND"}),
    ("*.snapshot_ids=*", INVALID),
    # Changed blocks.
    ("GetMetadata*.starting_offset=*", {"OUT_OF_RANGE"}),
    ("GetMetadata*.max_results=negative", INVALID),
    ("GetMetadata*.max_results=huge", {"OK"}),
    # Names and ids.
    ("CreateVolume.name=unknown", IGNORED),
    ("CreateSnapshot.name=unknown", IGNORED),
    ("Create*.name=path-trick", IGNORED),  # any printable text is a name: it never becomes a path
    ("*_id=absent", INVALID),
    ("*_id=unknown", ABSENT),
    ("*_id=*", {"INVALID_ARGUMENT", "NOT_FOUND"}),
    ("*.name=*", INVALID),
]


# Where CSI 0.3 wants something else; names of fields are those of 1.x.
TABLE_V0 = [
    ("ControllerUnpublishVolume.volume_id=unknown", ABSENT),
    ("ValidateVolumeCapabilities.accessible_topology=absent", IGNORED),
    ("ValidateVolumeCapabilities.accessible_topology=empty", {"OK"}),  # but not supported
    *TABLE,
]


def expected(name, table=TABLE):
    for pattern, codes in table:
        if fnmatch.fnmatchcase(name, pattern):
            return codes
    raise LookupError(f"no pattern says what must come of {name}")
