#pragma once
// What SnapshotGroups promises, asked of any array: the same for the one in memory, the one over the network
// and the real one. Each function makes volumes of its own, leaves nothing, and uses one thread.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "devices/array/array.h"
#include "devices/array/testing/contract_volume.h"

namespace lunkeeper::testing {

inline SnapshotGroup MustCreateGroup(Array& array, const std::string& name,
                                     const std::vector<VolumeId>& sources) {
  const auto made = array.groups().CreateGroup(name, sources);
  INFO(made.status());
  REQUIRE(made.ok());
  return *made;
}

inline size_t CountSnapshots(Array& array) {
  return array.volumes().ListSnapshots({}, "", 0).value().items.size();
}

// A group is made once for its name, has a snapshot of each volume, and goes as a whole.
inline void CheckGroupLife(Array& array) {
  const VolumeId a = MakeContractVolume(array, "a"), b = MakeContractVolume(array, "b");
  const size_t before = CountSnapshots(array);
  const SnapshotGroup group = MustCreateGroup(array, "nightly", {a, b});
  CHECK(IsGroupOf(group, {b, a}));
  REQUIRE(group.snapshots.size() == 2);
  for (const Snapshot& member : group.snapshots) {
    CHECK(member.group == group.id);
    CHECK(member.ready);
    CHECK(member.created == group.created);
    CHECK(member.size_bytes == 4 << 20);
    CHECK(array.volumes().GetSnapshot(member.id)->group == group.id);
    CHECK(absl::IsInvalidArgument(array.volumes().DeleteSnapshot(member.id)));
  }
  CHECK(CountSnapshots(array) == before + 2);
  CHECK(array.volumes().ListSnapshots(a, "", 0)->items.front().group == group.id);

  CHECK(MustCreateGroup(array, "nightly", {b, a}).id == group.id);
  CHECK(absl::IsAlreadyExists(array.groups().CreateGroup("nightly", {a}).status()));
  CHECK(CountSnapshots(array) == before + 2);
  const auto found = array.groups().GetGroup(group.id);
  REQUIRE(found.ok());
  CHECK(found->name == "nightly");
  CHECK(found->created == group.created);
  CHECK(found->snapshots.size() == 2);

  // It outlives its volumes.
  CHECK(array.volumes().DeleteVolume(b).ok());
  CHECK(array.groups().GetGroup(group.id).ok());
  CHECK(array.groups().DeleteGroup(group.id).ok());
  CHECK(array.groups().DeleteGroup(group.id).ok());
  CHECK(absl::IsNotFound(array.groups().GetGroup(group.id).status()));
  CHECK(absl::IsNotFound(array.volumes().GetSnapshot(group.snapshots.front().id).status()));
  CHECK(CountSnapshots(array) == before);
  CHECK(array.volumes().DeleteVolume(a).ok());
}

// What cannot be a group is refused, and leaves nothing.
inline void CheckGroupRefusals(Array& array) {
  const VolumeId a = MakeContractVolume(array, "a");
  const size_t before = CountSnapshots(array);
  CHECK(absl::IsInvalidArgument(array.groups().CreateGroup("", {a}).status()));
  CHECK(absl::IsInvalidArgument(array.groups().CreateGroup("g", {}).status()));
  CHECK(absl::IsInvalidArgument(array.groups().CreateGroup("g", {a, a}).status()));
  CHECK(absl::IsInvalidArgument(
      array.groups().CreateGroup("g", std::vector<VolumeId>(kMostInGroup + 1, a)).status()));
  const std::string absent = a.value().substr(0, a.value().size() - 4) + "ffff";
  CHECK(absl::IsNotFound(array.groups().CreateGroup("g", {a, VolumeId(absent)}).status()));
  CHECK(absl::IsNotFound(array.groups().GetGroup(SnapshotGroupId("nothing")).status()));
  CHECK(array.groups().DeleteGroup(SnapshotGroupId("nothing")).ok());
  CHECK(CountSnapshots(array) == before);
  CHECK(array.volumes().DeleteVolume(a).ok());
}

// A volume is restored from a member as from any snapshot.
inline void CheckRestoreFromMember(Array& array) {
  const VolumeId a = MakeContractVolume(array, "a");
  const SnapshotGroup group = MustCreateGroup(array, "g", {a});
  VolumeSpec spec;
  spec.name = "restored";
  spec.size_bytes = 4 << 20;
  spec.source_snapshot = group.snapshots.front().id;
  const auto restored = array.volumes().CreateVolume(spec);
  CHECK(restored.status() == absl::OkStatus());
  CHECK(array.groups().DeleteGroup(group.id).ok());
  for (const VolumeId& id : {a, restored.ok() ? restored->id : a})
    CHECK(array.volumes().DeleteVolume(id).ok());
}

// Another cluster neither sees the group nor makes one of these volumes.
inline void CheckGroupsAreSeparate(Array& array, Array& other) {
  const VolumeId a = MakeContractVolume(array, "a");
  const SnapshotGroup group = MustCreateGroup(array, "g", {a});
  CHECK(absl::IsNotFound(other.groups().GetGroup(group.id).status()));
  CHECK(other.groups().DeleteGroup(group.id).ok());
  CHECK(array.groups().GetGroup(group.id).ok());
  CHECK(absl::IsNotFound(other.groups().CreateGroup("g", {a}).status()));
  CHECK(array.groups().DeleteGroup(group.id).ok());
  CHECK(array.volumes().DeleteVolume(a).ok());
}

}  // namespace lunkeeper::testing
