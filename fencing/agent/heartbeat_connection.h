#pragma once
// How heartbeats reach a controller replica: the seam between the sender and the network. gRPC's end of it is
// heartbeat_stream.h. Each connection belongs to one thread, which sends; answers come on other threads.

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "devices/volume_limits.h"
#include "fencing/core/event.h"
#include "fencing/protocol/device_detail.h"
#include "fencing/protocol/heartbeat_sink.h"

namespace lunkeeper {

struct HeartbeatAnswer {
  FencesByArray fences;
  std::set<std::string> removed_arrays = {};
  LimitsByVolume limits = {};
};

// One stream of heartbeats to one replica. Nothing fails but the stream as a whole: then it has an EndReason.
class HeartbeatConnection {
 public:
  // After AwaitEnd, or an EndReason.
  virtual ~HeartbeatConnection() = default;
  // Never blocks. Skips this heartbeat while the previous one is still being written: a queue of old
  // heartbeats would help nobody.
  virtual void SendHeartbeat(const fencing::Heartbeat& heartbeat, const DeviceDetails& details) = 0;
  // The reason why the stream ended; nullopt while it has not.
  virtual std::optional<std::string> EndReason() = 0;
  // The replica sees that the stream was closed.
  virtual void Cancel() = 0;
  // After it no more answers come.
  virtual void AwaitEnd() = 0;
};

// A replica that heartbeats go to.
struct HeartbeatReceiver {
  using OnAnswer = std::function<void(const HeartbeatAnswer&)>;
  std::string address;
  // Never blocks. `on_answer` is called for one answer at a time.
  std::function<std::unique_ptr<HeartbeatConnection>(OnAnswer on_answer)> begin_stream;
};
// All of them, as they are now; does not wait.
using ListHeartbeatReceivers = std::function<std::vector<HeartbeatReceiver>()>;

}  // namespace lunkeeper
