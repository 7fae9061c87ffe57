#pragma once
// The coordinator protocol's messages and what they mean here. Pure functions. What comes from outside is
// checked; failure is INVALID_ARGUMENT, naming the field.

#include "absl/status/statusor.h"
#include "devices/array/array.h"
#include "fencing/core/event.h"
#include "fencing/protocol/coordinator.pb.h"
#include "fencing/protocol/heartbeat_sink.h"

namespace lunkeeper {

// Of the caller: one of the instances of the machine `node_name`. PERMISSION_DENIED: of another machine.
absl::StatusOr<NodeId> ReadNode(const std::string& node, const std::string& node_name);
absl::StatusOr<VolumeId> ReadVolume(const std::string& volume_id);
absl::StatusOr<Access> ReadAccess(coordinator::v1::Access access);
coordinator::v1::Access WriteAccess(Access access);

// Volume, node and access are the request's; the owner is the node.
Grant ReadGrant(const coordinator::v1::AcquireRequest& request, const coordinator::v1::Grant& message);
coordinator::v1::Grant WriteGrant(const Grant& grant);

fencing::Heartbeat ReadHeartbeat(const coordinator::v1::Heartbeat& message);
coordinator::v1::Heartbeat WriteHeartbeat(const fencing::Heartbeat& heartbeat);
FencesByArray ReadFences(const NodeId& node, const coordinator::v1::HeartbeatAnswer& message);
coordinator::v1::HeartbeatAnswer WriteFences(const FencesByArray& fences);

}  // namespace lunkeeper
