#pragma once
// What GrantStore promises, asked of any array: the same for the one in memory, the one over
// the network and the real ones. Each function makes volumes of its own and leaves no grant and no volume.
// The functions start threads, and end them.

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <string>

#include "absl/strings/match.h"
#include "base/testing/test_host.h"
#include "devices/array/array.h"
#include "devices/array/testing/contract_volume.h"

namespace lunkeeper::testing {

// Nodes that the array has no fence of.
struct ContractNodes {
  NodeId a, b, c;
};

inline absl::StatusOr<Grant> TryGrant(Array& array, const VolumeId& volume, const NodeId& node,
                                      Access access = Access::kExclusive,
                                      absl::Duration wait = absl::ZeroDuration()) {
  return array.grants().AcquireGrant({.volume = volume, .node = node, .access = access}, wait);
}

inline std::future<absl::StatusOr<Grant>> GrantLater(Array& array, GrantRequest request) {
  auto later = std::async(std::launch::async, [&array, request] {
    return array.grants().AcquireGrant(request, absl::Seconds(30));
  });
  REQUIRE(Eventually([&] {
    const auto wanted = array.grants().ListWantedVolumes();
    return wanted.ok() && std::ranges::count(*wanted, request.volume) > 0;
  }));
  return later;
}

inline absl::Status ReleaseFrom(Array& array, const VolumeId& volume, const NodeId& node,
                                Generation generation = kAnyGeneration,
                                GrantOwner owner = GrantOwner::kNode) {
  return array.grants().ReleaseGrant(volume, node, owner, generation);
}

inline size_t CountGrants(Array& array, const VolumeId& volume) {
  const auto grants = array.grants().ListGrants({volume, {}});
  REQUIRE(grants.ok());
  return grants->size();
}

// A volume goes to one node, to several that share it, or to readers beside them.
inline void CheckAccess(Array& array, const ContractNodes& nodes) {
  const VolumeId volume = MakeContractVolume(array, "accessed");
  const auto first = TryGrant(array, volume, nodes.a);
  REQUIRE(first.status() == absl::OkStatus());
  const auto again = TryGrant(array, volume, nodes.a);
  REQUIRE(again.status() == absl::OkStatus());
  CHECK(again->generation == first->generation);
  CHECK(again->connection == first->connection);
  const auto refused = TryGrant(array, volume, nodes.b);
  CHECK(absl::IsFailedPrecondition(refused.status()));
  CHECK(absl::StrContains(refused.status().message(), nodes.a.value()));
  CHECK(absl::IsDeadlineExceeded(
      TryGrant(array, volume, nodes.b, Access::kExclusive, absl::Milliseconds(50)).status()));
  CHECK(absl::IsFailedPrecondition(TryGrant(array, volume, nodes.a, Access::kReadOnly).status()));
  CHECK(absl::IsFailedPrecondition(array.volumes().DeleteVolume(volume)));
  CHECK(CountGrants(array, volume) == 1);
  REQUIRE(ReleaseFrom(array, volume, nodes.a).ok());

  const VolumeId shared = MakeContractVolume(array, "shared");
  const auto writer = TryGrant(array, shared, nodes.a, Access::kSharedWrite);
  const auto reader = TryGrant(array, shared, nodes.b, Access::kReadOnly);
  REQUIRE(writer.status() == absl::OkStatus());
  REQUIRE(reader.status() == absl::OkStatus());
  CHECK(writer->connection.chap.secret != reader->connection.chap.secret);
  CHECK(absl::IsFailedPrecondition(TryGrant(array, shared, nodes.c).status()));
  REQUIRE(ReleaseFrom(array, shared, nodes.a).ok());
  CHECK(CountGrants(array, shared) == 1);
  REQUIRE(ReleaseFrom(array, shared, nodes.b).ok());
  for (const VolumeId& each : {volume, shared}) CHECK(array.volumes().DeleteVolume(each).ok());
  CHECK(absl::IsNotFound(TryGrant(array, volume, nodes.a).status()));
}

// A waiting node gets the volume when it is released, unless its caller has gone meanwhile.
inline void CheckWaiting(Array& array, const ContractNodes& nodes) {
  const VolumeId volume = MakeContractVolume(array, "awaited");
  REQUIRE(TryGrant(array, volume, nodes.a).ok());
  auto waiting = GrantLater(array, {.volume = volume, .node = nodes.b});
  REQUIRE(ReleaseFrom(array, volume, nodes.a).ok());
  REQUIRE(waiting.get().status() == absl::OkStatus());
  CHECK(array.grants().ListGrants({volume, {}})->front().node == nodes.b);

  std::atomic<bool> gone = false;
  GrantRequest request{.volume = volume, .node = nodes.a};
  request.abandoned = [&] { return gone.load(); };
  auto abandoned = GrantLater(array, request);
  gone = true;
  CHECK(absl::IsCancelled(abandoned.get().status()));
  // Over a network that reaches the array a moment later.
  REQUIRE(Eventually([&] { return array.grants().ListWantedVolumes()->empty(); }));
  REQUIRE(ReleaseFrom(array, volume, nodes.b).ok());
  CHECK(CountGrants(array, volume) == 0);
  CHECK(array.volumes().DeleteVolume(volume).ok());
}

// A release is of one grant alone.
inline void CheckReleases(Array& array, const ContractNodes& nodes) {
  const VolumeId volume = MakeContractVolume(array, "released");
  const auto first = TryGrant(array, volume, nodes.a);
  REQUIRE(first.status() == absl::OkStatus());
  CHECK(ReleaseFrom(array, volume, nodes.a, kAnyGeneration, GrantOwner::kOrchestrator).ok());
  CHECK(ReleaseFrom(array, volume, nodes.b).ok());
  CHECK(CountGrants(array, volume) == 1);
  REQUIRE(ReleaseFrom(array, volume, nodes.a, first->generation).ok());
  REQUIRE(ReleaseFrom(array, volume, nodes.a, first->generation).ok());
  const auto second = TryGrant(array, volume, nodes.a);
  REQUIRE(second.status() == absl::OkStatus());
  CHECK(second->generation > first->generation);
  CHECK(ReleaseFrom(array, volume, nodes.a, first->generation).ok());
  CHECK(CountGrants(array, volume) == 1);
  CHECK(ReleaseFrom(array, volume, nodes.a, second->generation).ok());
  CHECK(CountGrants(array, volume) == 0);
  CHECK(array.volumes().DeleteVolume(volume).ok());
}

inline void CheckGrants(Array& array, const ContractNodes& nodes) {
  CheckAccess(array, nodes);
  CheckWaiting(array, nodes);
  CheckReleases(array, nodes);
}

}  // namespace lunkeeper::testing
