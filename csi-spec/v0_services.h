#pragma once
// The services of CSI 0.3, for orchestrators that never moved on to 1.x. Each translates a call
// (v0_translation.h), makes the call of 1.x that does the same, and translates the answer: it has no state
// and decides nothing. So volumes, locks and errors are the same whichever version a caller speaks, and
// callers of both may share them. A client of 0.2 is served too: what it knows has not changed in 0.3.
//
// Thread-safe, if the services of 1.x are; these outlive them. Where 0.3 wants another answer than 1.x, a
// comment says so.

#include <functional>
#include <memory>
#include <string>

#include "csi/v0/csi.grpc.pb.h"
#include "csi/v1/csi.grpc.pb.h"

namespace lunkeeper {

// 0.3 wants the driver's name in reverse-domain form, 1.x as a domain.
std::unique_ptr<csi::v0::Identity::Service> MakeIdentityV0(csi::v1::Identity::Service& identity,
                                                           std::string name);
std::unique_ptr<csi::v0::Controller::Service> MakeControllerV0(csi::v1::Controller::Service& controller);

using UnpublishCall = std::function<grpc::Status(
    grpc::ServerContext*, const csi::v1::NodeUnpublishVolumeRequest*, csi::v1::NodeUnpublishVolumeResponse*)>;
// `unpublish` does what NodeUnpublishVolume does, but for the target path: in 0.3 the orchestrator makes it,
// and removes it again.
std::unique_ptr<csi::v0::Node::Service> MakeNodeV0(csi::v1::Node::Service& node, UnpublishCall unpublish);

}  // namespace lunkeeper
