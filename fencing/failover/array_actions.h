#pragma once
// Polls one array, and runs the core's actions on it. Blocks for as long as the array's own time limits
// allow; thread-safe as the array is. Every action may be repeated.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "devices/array/array.h"
#include "fencing/core/action.h"
#include "fencing/core/event.h"
#include "fencing/failover/kube_actions.h"
#include "fencing/failover/limits_board.h"

namespace lunkeeper::fencing {

struct GrantKind {
  Access access = Access::kExclusive;
  Generation generation = 0;
};

struct ArrayPoll {
  ArrayView view;
  std::vector<GrantKind> kinds;      // one for each of view.holdings, in their order
  std::vector<VolumeWanted> wanted;  // one for each node that holds a volume that another node waits for
  LimitsByNode limits;
  // Kept until the poll has been taken in (array_hub.h).
  using Ticket = std::shared_ptr<const bool>;
  Ticket ticket = {};
};

// Reads the array's grants with their I/O counters, its fences, the volumes that nodes wait for, and the
// heartbeats that landed on it. The times are those of `executor`.
absl::StatusOr<ArrayPoll> PollArray(const ArrayId& id, Array& array,
                                    const Executor& executor = RealExecutor());

Answer BeginTermOn(const BeginTerm& call, FenceControl& array, const std::string& self);
// The answer's fence has the volumes of this call only, even if the array fenced more before.
Answer FenceNodeOn(const FenceNode& call, FenceControl& array, const std::string& self);
Answer UnfenceNodeOn(const UnfenceNode& call, FenceControl& array);

}  // namespace lunkeeper::fencing
