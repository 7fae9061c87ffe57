#pragma once
// Fences and unfences a node at an operator's request, for `lunkeeper fence` and `lunkeeper unfence`. They
// create or delete a NodeFence at the API server and follow it until it is in force or gone. The leading
// controller does the work; the entries that it adds to the NodeFence's timeline are printed line by line.
// Blocks until then or until the deadline; stateless. Repetition: a request that is fulfilled already is OK.
//
// Failure: NOT_FOUND, there is no such node, and nothing was changed. DEADLINE_EXCEEDED, it is not done yet
// and continues. Others come from the API server.

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::fencing {

struct ManualFenceIo {
  kube::KubeClient& client;
  absl::Time deadline;
  std::function<void(const std::string& line)> print_line;
  // For the finalizers of others on an old NodeFence, which is over. A person waits meanwhile.
  absl::Duration others_time = absl::Seconds(10);
};

struct ManualFenceRequest {
  std::string node;   // a Node's name, or its driver's id
  std::string cause;  // for people; may be empty
  std::string requested_by;
  // The pods are asked to leave first, and the fence comes when they have, or two minutes later. A fence that
  // is there and comes at once stays as it is; one that waits for the pods comes at once if this is false.
  bool graceful = false;
};

absl::Status RequestManualFence(const ManualFenceIo& io, const ManualFenceRequest& request);
// Lifts every fence of the node, also one that failover made on its own evidence.
absl::Status RequestManualUnfence(const ManualFenceIo& io, const std::string& node);

}  // namespace lunkeeper::fencing
