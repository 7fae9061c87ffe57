#pragma once
// What NameIndex promises, asked of any array: the same for the one in memory, the one over the network and
// the real one. The function makes objects of its own, leaves none, and uses one thread.

#include <catch2/catch.hpp>
#include <string>

#include "devices/array/array.h"

namespace lunkeeper::testing {

// `other` is another cluster's view.
inline void CheckNames(Array& array, Array& other) {
  const auto find = [&](NamedKind kind, const std::string& name) {
    const auto found = array.names().FindNamed(kind, name);
    INFO(found.status());
    REQUIRE(found.ok());
    return *found;
  };
  VolumeSpec spec;
  spec.name = "one name";
  spec.size_bytes = 4 << 20;
  CHECK(find(NamedKind::kVolume, spec.name).empty());
  const auto volume = array.volumes().CreateVolume(spec);
  REQUIRE(volume.status() == absl::OkStatus());
  CHECK(find(NamedKind::kVolume, spec.name) == volume->id.value());
  // Kinds are apart, and so are clusters.
  CHECK(find(NamedKind::kSnapshot, spec.name).empty());
  CHECK(find(NamedKind::kSnapshotGroup, spec.name).empty());
  CHECK(other.names().FindNamed(NamedKind::kVolume, spec.name)->empty());
  CHECK(find(NamedKind::kVolume, "one nam").empty());

  const auto snapshot = array.volumes().CreateSnapshot("s", volume->id);
  REQUIRE(snapshot.status() == absl::OkStatus());
  CHECK(find(NamedKind::kSnapshot, "s") == snapshot->id.value());
  CHECK(find(NamedKind::kSnapshotGroup, "s").empty());
  const auto group = array.groups().CreateGroup("g", {volume->id});
  REQUIRE(group.status() == absl::OkStatus());
  CHECK(find(NamedKind::kSnapshotGroup, "g") == group->id.value());
  CHECK(find(NamedKind::kSnapshot, "g").empty());

  CHECK(array.groups().DeleteGroup(group->id).ok());
  CHECK(array.volumes().DeleteSnapshot(snapshot->id).ok());
  CHECK(array.volumes().DeleteVolume(volume->id).ok());
  CHECK(find(NamedKind::kVolume, spec.name).empty());
  CHECK(find(NamedKind::kSnapshot, "s").empty());
  CHECK(find(NamedKind::kSnapshotGroup, "g").empty());
}

}  // namespace lunkeeper::testing
