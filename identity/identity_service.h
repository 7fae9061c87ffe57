#pragma once
// The CSI Identity service: who we are, what the driver offers, and whether this process is ready. What is
// offered is the driver's, the same on every socket: an orchestrator that asks the node's socket learns there
// that volumes have to be published by the controller's. Thread-safe. The readiness check is asked anew for
// each Probe; it must answer within about a second. Any failure of it is "not ready".

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "csi/v1/csi.grpc.pb.h"

namespace lunkeeper {

std::unique_ptr<csi::v1::Identity::Service> MakeIdentityService(std::function<absl::Status()> ready);

}  // namespace lunkeeper
