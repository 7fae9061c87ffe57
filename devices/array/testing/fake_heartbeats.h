#pragma once
// The heartbeat LUNs of a FakeArray: nobody can log in to them, so tests say when a heartbeat lands. Not
// thread-safe; nothing fails.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "devices/array/fence_control.h"
#include "devices/array/testing/fake_connection.h"

namespace lunkeeper {

class FakeHeartbeats {
 public:
  void LandHeartbeat(const NodeId& node) {
    HeartbeatLun& lun = luns_[node];
    ++lun.heartbeats;
    lun.last_at = absl::Now();
  }
  // `generation`: the array's counter.
  Connection OpenLun(const HeartbeatLunRequest& request, const std::string& array, Generation& generation) {
    HeartbeatLun& lun = luns_[request.node];
    if (lun.connection.portal.empty())
      lun.connection = MakeFakeConnection(array, "heartbeat", request.node, ++generation);
    lun.connection.signing_key = request.signs ? "the key of the fake" : "";
    return lun.connection;
  }
  std::vector<LandedHeartbeat> ListHeartbeats() const {
    std::vector<LandedHeartbeat> heartbeats;
    for (const auto& [node, lun] : luns_)
      if (lun.heartbeats > 0) heartbeats.push_back({node, lun.heartbeats, absl::Now() - lun.last_at});
    return heartbeats;
  }

 private:
  struct HeartbeatLun {
    Connection connection;
    uint64_t heartbeats = 0;
    absl::Time last_at;
  };
  std::map<NodeId, HeartbeatLun> luns_;
};

}  // namespace lunkeeper
