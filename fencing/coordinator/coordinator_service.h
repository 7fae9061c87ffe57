#pragma once
// The coordinator service (coordinator.proto), which runs in every controller replica. It gives nodes their
// grants and receives their heartbeats. It keeps no state but reviewed tokens, so a call may go to any
// replica.
//
// Thread-safe. A waiting Acquire occupies one of the server's threads; heartbeats run on gRPC's own threads
// and never wait behind it. A caller's machine is the one in its token. A request that names another machine
// fails with PERMISSION_DENIED. `grants`, `arrays`, `authenticator` and `sink` outlive the service.

#include <grpcpp/grpcpp.h>

#include <memory>

#include "devices/array/arrays.h"
#include "fencing/coordinator/authenticator.h"
#include "fencing/coordinator/node_budgets.h"
#include "fencing/protocol/heartbeat_sink.h"
#include "fencing/protocol/volume_use_check.h"

namespace lunkeeper {

class CoordinatorService {
 public:
  virtual ~CoordinatorService() = default;
  virtual grpc::Service* service() = 0;
  // Sends waiting callers and heartbeating nodes to another replica, within a second. Called before the
  // server is stopped, so that no node notices.
  virtual void SendNodesAway() = 0;
};

struct CoordinatorLimits {
  size_t most_volumes = 0;  // of one array that a node may have; 0: any number
  NodeLimits node = {};
  Authenticator* controllers = nullptr;  // of callers of Hears; null: nobody may call it
  VolumeUseCheck* uses = nullptr;        // of new grants; null: a node gets what it asks for
};

// `grants` are those of all `arrays`. Without a `sink` (null) heartbeats are answered and go nowhere.
std::unique_ptr<CoordinatorService> MakeCoordinatorService(GrantStore& grants, Arrays& arrays,
                                                           Authenticator& authenticator, HeartbeatSink* sink,
                                                           const CoordinatorLimits& limits = {});

}  // namespace lunkeeper
