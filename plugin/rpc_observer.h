#pragma once
// Counts and logs every call of a gRPC server: method, code, duration, and which objects it was about. Of a
// request it reads only the fields that name an object (volume_id, node_id, …), so secrets, contexts and
// parameters never reach a log. Failures are logged with their message; calls that orchestrators repeat all
// day are logged at debug.

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "base/metrics.h"
#include "plugin/connection_gate.h"

namespace lunkeeper {

// Both outlive the server. `gate`, which may be null, learns how the calls of each connection end.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRpcObserverFactory(
    Metrics* metrics, ConnectionGate* gate);

}  // namespace lunkeeper
