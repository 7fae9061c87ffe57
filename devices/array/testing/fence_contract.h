#pragma once
// What FenceControl promises of fences and terms, asked of any array: the same for the one in memory, the one
// over the network and the real ones. It makes volumes of its own and leaves no grant, no fence and no
// volume. It starts threads, and ends them.

#include <catch2/catch.hpp>
#include <vector>

#include "devices/array/testing/grant_contract.h"

namespace lunkeeper::testing {

// A fence ends what it names, lets nothing new in, also no call that waits, and obeys the newest term.
inline void CheckFences(Array& array, const ContractNodes& nodes) {
  const VolumeId taken = MakeContractVolume(array, "taken"), kept = MakeContractVolume(array, "kept"),
                 other = MakeContractVolume(array, "other's");
  REQUIRE(TryGrant(array, taken, nodes.a).ok());
  REQUIRE(TryGrant(array, kept, nodes.a).ok());
  REQUIRE(TryGrant(array, other, nodes.b).ok());
  auto refused = GrantLater(array, {.volume = other, .node = nodes.a});
  auto replacement = GrantLater(array, {.volume = taken, .node = nodes.b});
  const Term old_term = array.fences().BeginTerm("one").value();
  const Term term = array.fences().BeginTerm("two").value();
  CHECK(term > old_term);
  CHECK(absl::IsFailedPrecondition(array.fences().FenceNode(old_term, {nodes.a, {taken}}).status()));
  CHECK(array.fences().ListFences()->empty());

  const auto fence = array.fences().FenceNode(term, {nodes.a, {taken}});
  REQUIRE(fence.status() == absl::OkStatus());
  CHECK(absl::IsFailedPrecondition(refused.get().status()));
  CHECK(replacement.get().status() == absl::OkStatus());
  CHECK(array.grants().ListGrants({{}, nodes.a})->size() == 1);
  CHECK(absl::IsFailedPrecondition(TryGrant(array, taken, nodes.a).status()));
  REQUIRE(array.fences().ListFences()->size() == 1);
  CHECK(array.fences().ListFences()->front().volumes == std::vector{taken});
  const auto more = array.fences().FenceNode(term, {nodes.a, {kept}});
  REQUIRE(more.status() == absl::OkStatus());
  CHECK(more->volumes.size() == 2);
  CHECK(array.grants().ListGrants({{}, nodes.a})->empty());

  CHECK(absl::IsFailedPrecondition(array.fences().UnfenceNode(old_term, nodes.a, more->generation)));
  CHECK(absl::IsFailedPrecondition(array.fences().UnfenceNode(term, nodes.a, more->generation + 1)));
  CHECK(array.fences().ListFences()->size() == 1);
  CHECK(array.fences().UnfenceNode(term, nodes.a, more->generation).ok());
  CHECK(array.fences().UnfenceNode(term, nodes.a, more->generation).ok());
  CHECK(array.fences().ListFences()->empty());
  CHECK(array.grants().ListGrants({{}, nodes.a})->empty());  // it gives nothing back
  CHECK(TryGrant(array, kept, nodes.a).ok());
  CHECK(ReleaseFrom(array, kept, nodes.a).ok());
  for (const VolumeId& volume : {taken, other}) CHECK(ReleaseFrom(array, volume, nodes.b).ok());
  for (const VolumeId& volume : {taken, kept, other}) CHECK(array.volumes().DeleteVolume(volume).ok());
}

}  // namespace lunkeeper::testing
