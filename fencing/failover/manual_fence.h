#pragma once
// The manual levers of failover, for an operator's shell. A NodeFence is made, or taken back, at the API
// server, and followed until it is in force, or gone; the controller that leads does the work, and what it
// writes into the NodeFence's timeline is told line by line. Blocks until then or until the deadline;
// stateless. Repetition is fine: what is so already is OK, and said.
//
// Failure: NOT_FOUND: there is no such node, and nothing was changed. DEADLINE_EXCEEDED: it is not done yet,
// and goes on. Others are the API server's word.

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::fencing {

struct ManualFenceIo {
  kube::KubeClient& client;
  absl::Time deadline;
  std::function<void(const std::string& line)> tell;
};

struct ManualFenceRequest {
  std::string node;   // a Node's name, or its driver's id
  std::string cause;  // empty: none is given
  std::string requested_by;
};

absl::Status RequestManualFence(const ManualFenceIo& io, const ManualFenceRequest& request);
// Every fence that the node has, also one that evidence has led to.
absl::Status RequestManualUnfence(const ManualFenceIo& io, const std::string& node);

}  // namespace lunkeeper::fencing
