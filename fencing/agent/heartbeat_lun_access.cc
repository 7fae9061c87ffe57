#include "fencing/agent/heartbeat_lun_access.h"

#include "base/status_macros.h"
#include "devices/connection_message.h"

namespace lunkeeper {

HeartbeatLunAccess AskForHeartbeatLun(Replicas& replicas, const NodeId& node) {
  return [&replicas, node](const fencing::ArrayId& array, absl::Time deadline) -> absl::StatusOr<Connection> {
    coordinator::v1::OpenHeartbeatLunRequest request;
    request.set_node(node.value());
    request.set_array(array.value());
    request.set_signs(true);
    devices::v1::Connection response;
    RETURN_IF_ERROR(replicas.CallAny(
        "ask for the heartbeat LUN on array " + array.value(), deadline,
        [&](auto& stub, auto* context) { return stub.OpenHeartbeatLun(context, request, &response); }));
    return FromMessage(response);
  };
}

}  // namespace lunkeeper
