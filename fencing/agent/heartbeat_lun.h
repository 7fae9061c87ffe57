#pragma once
// How a node reaches a heartbeat LUN (devices/array/fence_control.h): the seam between its heartbeats to
// storage and the network. A session belongs to one thread, which waits for each call.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/types.h"

namespace lunkeeper {

// A session with one of them. After a failure it is of no use any more.
class HeartbeatLun {
 public:
  virtual ~HeartbeatLun() = default;
  // Whole blocks, from `block` on.
  virtual absl::Status WriteBlocks(uint64_t block, std::span<const char> data) = 0;
  virtual absl::Status ReadBlocks(uint64_t block, std::span<char> data) = 0;
};

// At the connection's own portal. PERMISSION_DENIED: the login is refused. `timeout` is of each call.
using LogInToHeartbeatLun = std::function<absl::StatusOr<std::unique_ptr<HeartbeatLun>>(
    const Connection& connection, absl::Duration timeout)>;
// devices/iscsi/block_session.h says how each call fails.
absl::StatusOr<std::unique_ptr<HeartbeatLun>> LogInByIscsi(const Connection& connection,
                                                           absl::Duration timeout);

}  // namespace lunkeeper
