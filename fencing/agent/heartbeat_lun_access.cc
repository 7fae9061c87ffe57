#include "fencing/agent/heartbeat_lun_access.h"

#include "base/status_macros.h"

namespace lunkeeper {

HeartbeatLunAccess AskForHeartbeatLun(ReplicaTable& replicas, const NodeId& node, Executor& executor) {
  return [&replicas, node, &executor](const fencing::ArrayId& array,
                                      absl::Time deadline) -> absl::StatusOr<Connection> {
    Connection connection;
    RETURN_IF_ERROR(
        replicas.CallAny("ask for the heartbeat LUN on array " + array.value(), deadline - executor.WallNow(),
                         [&](const ReplicaConnection& replica, absl::Duration limit) {
                           return replica.OpenHeartbeatLun(node, array.value(), limit, &connection);
                         }));
    return connection;
  };
}

}  // namespace lunkeeper
