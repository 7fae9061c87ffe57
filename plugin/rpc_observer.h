#pragma once
// Counts and logs every call of a gRPC server: method, code, duration, and which objects it was about. Of a
// request it reads only the fields that name an object (volume_id, node_id, …), so secrets, contexts and
// parameters never reach a log. Failures are logged with their message; calls that orchestrators repeat all
// day are logged at debug.

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "base/metrics.h"

namespace lunkeeper {

// `metrics` outlives the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRpcObserverFactory(
    Metrics* metrics);

}  // namespace lunkeeper
