#pragma once
// Sends a node's beats to every controller replica, each half second, from a thread of its own. `health` is
// asked from another thread, so that a data path which hangs does not silence the node; it must end within a
// second or so. Thread-safe. Nothing fails: a stream that ends is begun anew, and a replica that does not
// read misses beats. The destructor closes the streams, which tells the controllers that this node's kernel
// lives. `replicas` outlives it.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "devices/initiator/initiator.h"
#include "fencing/keeper/replicas.h"

namespace lunkeeper {

struct BeatOptions {
  NodeId node;
  absl::Duration every = absl::Milliseconds(500);
};

class BeatSender {
 public:
  virtual ~BeatSender() = default;
};

// `health`: this node's devices. When it fails, I/O to all that were there before counts as failing.
using DeviceHealthSource = std::function<absl::StatusOr<std::vector<Device>>()>;
std::unique_ptr<BeatSender> StartBeatSender(const BeatOptions& options, Replicas& replicas,
                                            DeviceHealthSource health);

}  // namespace lunkeeper
