#pragma once
// What the core asks of the API server, one call each, bounded in time, with the conditions that the action
// names. Blocks; thread-safe. Every action may be repeated: what is already so is OK or a conflict, never an
// error.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "fencing/core/action.h"
#include "fencing/core/event.h"
#include "fencing/failover/record.h"
#include "fencing/kube/kube_client.h"
#include "fencing/kube/lease.h"
#include "fencing/kube/object_event.h"

namespace lunkeeper::fencing {

// What became of an action: for the core, and for the log.
struct Answer {
  Done done;
  absl::Status status;
};

// `status` as the core reads it, of a call to the API server.
Answer FromApi(absl::Status status);

class KubeActions {
 public:
  // `self` is this replica's name in the lease.
  KubeActions(kube::KubeClient& client, kube::LeaseName lease, std::string self,
              absl::Duration lease_duration)
      : client_(client), lease_(std::move(lease)), self_(std::move(self)), duration_(lease_duration) {}

  absl::StatusOr<LeaseSeen> ReadLease();
  Answer Run(const WriteLease& call);
  // Gives it up, if it is ours.
  void LeaveLease();

  Answer Run(const PutNodeFence& call, const Timeline& timeline);
  Answer Run(const RemoveNodeFence& call);
  // `uid` and `taints` are the node's, at the version that the call expects.
  Answer Run(const SetTaint& call, const Uid& uid, const std::string& taints);
  Answer Run(const DeletePod& call);
  // Nothing depends on it.
  void Record(kube::ObjectEvent event);

 private:
  kube::KubeClient& client_;
  const kube::LeaseName lease_;
  const std::string self_;
  const absl::Duration duration_;
  absl::Mutex mu_;
  kube::Lease last_ ABSL_GUARDED_BY(mu_);  // as it was last read or written
};

}  // namespace lunkeeper::fencing
