#pragma once
// What a controller without failover takes heartbeats for: its answers tell nodes the limits of their
// volumes. Looks at the grants of all arrays twice a second. An array that does not answer keeps what was
// seen last, and delays the others by its own time limit. Thread-safe. `arrays` outlives it.

#include "base/periodic.h"
#include "devices/array/arrays.h"
#include "fencing/failover/limits_board.h"
#include "fencing/protocol/heartbeat_sink.h"

namespace lunkeeper {

class LimitsSink final : public HeartbeatSink {
 public:
  explicit LimitsSink(Arrays& arrays, absl::Duration every = absl::Milliseconds(500))
      : arrays_(arrays), looks_(every, [this] { PollGrants(); }) {}

  FencesByArray OnHeartbeat(fencing::Heartbeat) override { return {}; }
  LimitsByVolume LimitsOf(const NodeId& node) override { return board_.LimitsOf(node); }
  void OnClosed(const NodeId&) override {}

 private:
  void PollGrants() {
    for (const NamedArray& named : arrays_.ListArrays()) {
      const auto grants = named.array->grants().ListGrants({});
      if (grants.ok()) board_.OnLimits(fencing::ArrayId(named.name), fencing::LimitsOfGrants(*grants));
    }
  }

  Arrays& arrays_;
  fencing::LimitsBoard board_;
  Periodic looks_;  // last: its thread uses the other members
};

}  // namespace lunkeeper
