#pragma once
// What every kind of array does when a volume is modified: a test of its own for each calls this.

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "devices/array/array.h"

namespace lunkeeper::testing {

inline void CheckLimits(Array& array, const NodeId& node) {
  VolumeSpec spec;
  spec.name = "limited";
  spec.size_bytes = 1 << 20;
  spec.limits.iops = 200;
  const auto made = array.volumes().CreateVolume(spec);
  REQUIRE(made.status() == absl::OkStatus());
  CHECK(made->spec.limits == VolumeLimits{.iops = 200, .bytes_per_second = 0, .version = 1});
  const auto grant = array.grants().AcquireGrant({.volume = made->id, .node = node}, absl::ZeroDuration());
  REQUIRE(grant.status() == absl::OkStatus());
  CHECK(grant->limits == made->spec.limits);

  // Only what is named changes; a node has the volume meanwhile, and its grant has the new limits.
  const VolumeChange change{.max_iops = {}, .max_bandwidth = 8 << 20, .durability = {}};
  const auto changed = array.volumes().ModifyVolume(made->id, change);
  REQUIRE(changed.status() == absl::OkStatus());
  const VolumeLimits both{.iops = 200, .bytes_per_second = 8 << 20, .version = 2};
  CHECK(changed->spec.limits == both);
  CHECK(array.volumes().GetVolume(made->id)->spec.limits == both);
  CHECK(array.grants().ListGrants({made->id, {}})->front().limits == both);
  CHECK(array.volumes().ModifyVolume(made->id, change)->spec.limits == both);  // repeated: no new version
  CHECK(array.volumes().ModifyVolume(made->id, {.max_iops = 0, .max_bandwidth = 0})->spec.limits ==
        VolumeLimits{.iops = 0, .bytes_per_second = 0, .version = 3});
  CHECK(array.volumes().CreateVolume(spec)->id == made->id);  // limits are no part of what it was made as
}

inline void CheckDurability(Array& array, const NodeId& node) {
  VolumeSpec spec;
  spec.name = "durable";
  spec.size_bytes = 1 << 20;
  const VolumeId volume = array.volumes().CreateVolume(spec).value().id;
  const VolumeChange to_sync{.max_iops = 300, .max_bandwidth = {}, .durability = Durability::kSync};
  REQUIRE(array.grants().AcquireGrant({.volume = volume, .node = node}, absl::ZeroDuration()).ok());
  const auto refused = array.volumes().ModifyVolume(volume, to_sync);
  CHECK(absl::IsFailedPrecondition(refused.status()));
  CHECK(absl::StrContains(refused.status().message(), node.value()));
  CHECK(array.volumes().GetVolume(volume)->spec.limits == VolumeLimits());  // nothing of it
  REQUIRE(array.grants().ReleaseGrant(volume, node, GrantOwner::kNode, kAnyGeneration).ok());
  const auto changed = array.volumes().ModifyVolume(volume, to_sync);
  REQUIRE(changed.status() == absl::OkStatus());
  CHECK(changed->spec.durability == Durability::kSync);
  CHECK(changed->spec.limits.iops == 300);
  const auto grant = array.grants().AcquireGrant({.volume = volume, .node = node}, absl::ZeroDuration());
  REQUIRE(grant.status() == absl::OkStatus());
  CHECK(grant->durability == Durability::kSync);
  CHECK(array.volumes().ModifyVolume(volume, to_sync).ok());  // as it is: nobody is asked
}

inline void CheckDigests(Array& array, const NodeId& node) {
  VolumeSpec spec;
  spec.name = "checked";
  spec.size_bytes = 1 << 20;
  spec.digests = Digests::kHeader;
  const auto made = array.volumes().CreateVolume(spec);
  REQUIRE(made.status() == absl::OkStatus());
  CHECK(made->spec.digests == Digests::kHeader);
  const auto grant = array.grants().AcquireGrant({.volume = made->id, .node = node}, absl::ZeroDuration());
  REQUIRE(grant.status() == absl::OkStatus());
  CHECK(grant->connection.digests == Digests::kHeader);
  const VolumeChange to_all{.digests = Digests::kAll};
  CHECK(absl::IsFailedPrecondition(array.volumes().ModifyVolume(made->id, to_all).status()));
  CHECK(array.volumes().ModifyVolume(made->id, {.max_iops = 500})->spec.digests == Digests::kHeader);
  REQUIRE(array.grants().ReleaseGrant(made->id, node, GrantOwner::kNode, kAnyGeneration).ok());
  const auto changed = array.volumes().ModifyVolume(made->id, to_all);
  REQUIRE(changed.status() == absl::OkStatus());
  CHECK(changed->spec.digests == Digests::kAll);
  const auto again = array.grants().AcquireGrant({.volume = made->id, .node = node}, absl::ZeroDuration());
  REQUIRE(again.status() == absl::OkStatus());
  CHECK(again->connection.digests == Digests::kAll);
  CHECK(array.grants().ListGrants({made->id, {}})->front().connection.digests == Digests::kAll);
  CHECK(array.volumes().CreateVolume(spec)->id == made->id);  // more than is asked for will do
  spec.name = "unchecked", spec.digests = Digests::kNone;
  REQUIRE(array.volumes().CreateVolume(spec).ok());
  spec.digests = Digests::kAll;
  CHECK(absl::IsAlreadyExists(array.volumes().CreateVolume(spec).status()));  // less will not
}

// `node` is not fenced. The array has no volumes of these names.
inline void CheckModify(Array& array, const NodeId& node) {
  CheckLimits(array, node);
  CheckDurability(array, node);
  CheckDigests(array, node);
  CHECK(absl::IsNotFound(array.volumes().ModifyVolume(VolumeId("a1-v0"), {.max_iops = 500}).status()));
}

}  // namespace lunkeeper::testing
