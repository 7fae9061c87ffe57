#pragma once
// Converts between the coordinator protocol's messages and the project's own types. Pure functions. Requests
// come from outside and are checked; failure is INVALID_ARGUMENT with the field's name.

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/grant.h"
#include "fencing/core/event.h"
#include "fencing/protocol/coordinator.pb.h"
#include "fencing/protocol/device_detail.h"
#include "fencing/protocol/heartbeat_sink.h"

namespace lunkeeper {

// The node id that a caller claims, for a caller whose token names the machine `node_name`.
// PERMISSION_DENIED: the id is of another machine.
absl::StatusOr<NodeId> ReadNode(const std::string& node, const std::string& node_name);
absl::StatusOr<VolumeId> ReadVolume(const std::string& volume_id);
absl::StatusOr<Access> ReadAccess(coordinator::v1::Access access);
coordinator::v1::Access WriteAccess(Access access);
absl::StatusOr<VolumeMode> ReadMode(coordinator::v1::VolumeMode mode);
coordinator::v1::VolumeMode WriteMode(VolumeMode mode);

// The message omits what the caller knows: volume, node and access come from the request.
Grant ReadGrant(const coordinator::v1::AcquireRequest& request, const coordinator::v1::Grant& message);
coordinator::v1::Grant WriteGrant(const Grant& grant);

// Every list and text is checked for its length.
absl::StatusOr<fencing::Heartbeat> ReadHeartbeat(const coordinator::v1::Heartbeat& message);
coordinator::v1::Heartbeat WriteHeartbeat(const fencing::Heartbeat& heartbeat);
// What is malformed or too long is left out: no heartbeat is refused for what only people look at.
DeviceDetails ReadDetails(const coordinator::v1::Heartbeat& message);
void WriteDetails(const DeviceDetails& details, coordinator::v1::Heartbeat* message);
FencesByArray ReadFences(const NodeId& node, const coordinator::v1::HeartbeatAnswer& message);
LimitsByVolume ReadLimits(const coordinator::v1::HeartbeatAnswer& message);
std::set<std::string> ReadRemovedArrays(const coordinator::v1::HeartbeatAnswer& message);
std::vector<std::string> ReadReplicas(const coordinator::v1::HeartbeatAnswer& message);
coordinator::v1::HeartbeatAnswer WriteAnswer(const FencesByArray& fences, const LimitsByVolume& limits,
                                             const std::set<std::string>& removed_arrays,
                                             const std::vector<std::string>& replicas);

}  // namespace lunkeeper
