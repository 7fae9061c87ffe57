#pragma once
// What the core asks of one array, and the looks at it that the core lives on. Blocks for as long as the
// array's own limits of time allow; thread-safe as the array is. Every action may be repeated.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/array/array.h"
#include "fencing/core/action.h"
#include "fencing/core/event.h"
#include "fencing/failover/kube_actions.h"

namespace lunkeeper::fencing {

struct GrantKind {
  Access access = Access::kExclusive;
  Generation generation = 0;
};

struct ArrayPoll {
  ArrayView view;
  std::vector<GrantKind> kinds;      // of each of view.holdings, in their order
  std::vector<VolumeWanted> wanted;  // by somebody, of each that has it
  StorageHeartbeats heartbeats;
};

// Its grants with their I/O counters, its fences, what is waited for, and the heartbeats that landed there.
absl::StatusOr<ArrayPoll> PollArray(const ArrayId& id, Array& array);

Answer Run(const BeginTerm& call, FenceControl& array, const std::string& self);
// Verified is what this call named, and no more.
Answer Run(const FenceNode& call, FenceControl& array);
Answer Run(const UnfenceNode& call, FenceControl& array);

}  // namespace lunkeeper::fencing
