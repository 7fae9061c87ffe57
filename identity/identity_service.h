#pragma once
// The CSI Identity service: who we are, what this process offers, and whether it is ready. Thread-safe. The
// readiness check is asked anew for each Probe; it must answer within about a second. Any failure of it is
// "not ready".

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "csi/v1/csi.grpc.pb.h"

namespace lunkeeper {

inline constexpr char kDriverName[] = "csi.lunkeeper.io";

struct IdentityOptions {
  bool controller = false;  // this process serves the Controller service too
};

std::unique_ptr<csi::v1::Identity::Service> MakeIdentityService(IdentityOptions options,
                                                                std::function<absl::Status()> ready);

}  // namespace lunkeeper
