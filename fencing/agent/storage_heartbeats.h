#pragma once
// A node's heartbeats to the arrays themselves: one each half second to its own heartbeat LUN on each array
// (devices/array/heartbeat_luns.h), from a thread of its own for each, so that the arrays can say that it
// lives when the network between it and the controllers does not. What the array has noted there comes back.
//
// Thread-safe. Nothing fails: what does is tried again, a little later each time, and said when it changes.
// The destructor joins the threads, which takes as long as an answer may take.

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/types.h"
#include "fencing/agent/replicas.h"
#include "fencing/core/types.h"

namespace lunkeeper {

struct StorageHeartbeatOptions {
  NodeId node;
  std::vector<fencing::ArrayId> arrays;
  absl::Duration every = absl::Milliseconds(500);
  absl::Duration answer_timeout = absl::Seconds(2);  // with each answer, of an array and of the controllers
};

// How the node reaches its heartbeat LUN on an array; asked at first, and when what it said is refused.
// Called from the threads.
using HeartbeatLunAccess =
    std::function<absl::StatusOr<Connection>(const fencing::ArrayId& array, absl::Time deadline)>;

// From the controllers. `replicas` outlives it.
HeartbeatLunAccess AskForHeartbeatLun(Replicas& replicas, const NodeId& node);

class StorageHeartbeats {
 public:
  virtual ~StorageHeartbeats() = default;
  // Since a heartbeat last landed, or since the start: of the array where it is longest ago.
  virtual absl::Duration Age() const = 0;
};

// `fenced` hears of the fence in force against the node, when what the array says of it changes; called from
// the threads.
using Fenced = std::function<void(const fencing::ArrayId& array, const fencing::ArrayFence& fence)>;
std::unique_ptr<StorageHeartbeats> StartStorageHeartbeats(const StorageHeartbeatOptions& options,
                                                          const HeartbeatLunAccess& access,
                                                          const Fenced& fenced);

}  // namespace lunkeeper
