#pragma once
// The limits of this node's volumes, where the node and its arrays are in one process (mode `all`): looks at
// the grants twice a second, and sets the devices' limits. Elsewhere the answers to heartbeats bring them.
// While an array does not answer, the limits stay as they are. The destructor waits for a look under way;
// `grants` outlives this.

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "base/periodic.h"
#include "devices/array/grant_store.h"
#include "devices/datapath/limit_setter.h"

namespace lunkeeper {

class LimitWatch {
 public:
  // `devices` lists the node's devices, within a second or so.
  LimitWatch(GrantStore& grants, const NodeId& node,
             std::function<absl::StatusOr<std::vector<Device>>()> devices, LimitSetter::Set set,
             absl::Duration every = absl::Milliseconds(500));

 private:
  void PollGrants();

  GrantStore& grants_;
  const NodeId node_;
  const std::function<absl::StatusOr<std::vector<Device>>()> devices_;
  LimitSetter setter_;
  Periodic looks_;  // last: its thread uses the other members
};

}  // namespace lunkeeper
