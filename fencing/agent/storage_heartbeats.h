#pragma once
// A node's heartbeats to the arrays themselves. Each half second the node writes one to its own heartbeat LUN
// on each array (devices/array/fence_control.h), so that an array can tell that the node lives when the
// network between the node and the controllers is down. In the other direction the node reads the fence
// notice that the array stores on the same LUN. Each array has a thread of its own. Where the array has given
// a key, heartbeats are signed with it, and a notice that is not is ignored and counted.
//
// Thread-safe. Nothing fails: a failed heartbeat is repeated after a growing pause, and logged when the
// result changes. The destructor joins the threads, which takes at most `answer_timeout` per answer.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "devices/types.h"
#include "fencing/agent/heartbeat_lun.h"
#include "fencing/agent/this_boot.h"
#include "fencing/core/types.h"

namespace lunkeeper {

struct StorageHeartbeatOptions {
  NodeId node;
  std::vector<fencing::ArrayId> arrays;
  absl::Duration every = absl::Milliseconds(500);
  absl::Duration answer_timeout = absl::Seconds(2);  // for each answer of an array or of the controllers
  LogInToHeartbeatLun log_in = {};                   // always given: LogInByIscsi
  // They number the heartbeats.
  std::string boot = BootId();
  std::function<uint64_t()> millis_since_boot = MillisSinceBoot;
  Executor& executor = RealExecutor();
};

// Says how the node reaches its heartbeat LUN on an array. Called from the arrays' threads, before the first
// login and after each login that was refused.
using HeartbeatLunAccess =
    std::function<absl::StatusOr<Connection>(const fencing::ArrayId& array, absl::Time deadline)>;

class StorageHeartbeatSender {
 public:
  virtual ~StorageHeartbeatSender() = default;
  // For each array, the time since a heartbeat last landed there, or since the start.
  virtual std::map<fencing::ArrayId, absl::Duration> Ages() const = 0;
  // Fence notices that were ignored, since they were not signed as they had to be.
  virtual uint64_t ForgedNotices() const = 0;
};

// Receives the fence in force against the node whenever the array's notice changes. Called from the arrays'
// threads.
using Fenced = std::function<void(const fencing::ArrayId& array, const fencing::ArrayFence& fence)>;
// A heartbeat has landed on the array. Called from the arrays' threads.
using Landed = std::function<void(const fencing::ArrayId& array)>;
std::unique_ptr<StorageHeartbeatSender> StartStorageHeartbeats(const StorageHeartbeatOptions& options,
                                                               const HeartbeatLunAccess& access,
                                                               const Fenced& fenced, const Landed& landed);

}  // namespace lunkeeper
