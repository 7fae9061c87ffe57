#pragma once
// The coordinator service (coordinator.proto), in every controller replica: gives nodes their grants and
// hears their heartbeats. Keeps nothing but remembered tokens, so a call may go to any replica.
//
// Thread-safe. A waiting Acquire holds one of its server's threads; heartbeats share gRPC's own and are never
// behind it. A caller's machine comes from its token; what the request says is only compared with that
// (PERMISSION_DENIED). `array`, `arrays`, `authenticator` and `sink` outlive it.

#include <grpcpp/grpcpp.h>

#include <memory>

#include "devices/array/arrays.h"
#include "fencing/coordinator/authenticator.h"
#include "fencing/protocol/heartbeat_sink.h"

namespace lunkeeper {

class CoordinatorService {
 public:
  virtual ~CoordinatorService() = default;
  virtual grpc::Service* service() = 0;
  // Before its server is stopped: sends waiting callers and heartbeating nodes to another replica,
  // within a second.
  virtual void Leave() = 0;
};

// `array` is all of `arrays`. `sink` may be null: then heartbeats are answered, and that is all.
std::unique_ptr<CoordinatorService> MakeCoordinatorService(AccessControl& array, Arrays& arrays,
                                                           Authenticator& authenticator, HeartbeatSink* sink);

}  // namespace lunkeeper
