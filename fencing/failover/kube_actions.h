#pragma once
// Runs the core's actions on the API server: one call each, with a time limit and with the preconditions that
// the action names. Blocks; thread-safe. Every action may be repeated: one whose effect is there already is
// OK or a conflict, never an error. One that timed out has more time when it is repeated (call_times.h).

#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/executor.h"
#include "fencing/core/action.h"
#include "fencing/core/event.h"
#include "fencing/failover/call_times.h"
#include "fencing/failover/record.h"
#include "fencing/kube/kube_client.h"
#include "fencing/kube/lease.h"
#include "fencing/kube/object_event.h"

namespace lunkeeper::fencing {

// The outcome of an action: `done` for the core, `status` for the log.
struct Answer {
  Done done;
  absl::Status status;
};

// Converts the status of a call to the API server.
Answer FromApi(absl::Status status);

struct CallRules {
  // Shorter than the lease, so that the first try of a call cannot outlive the leadership under which it was
  // made by much.
  absl::Duration first_timeout = absl::Seconds(3);
  // Whether this replica may still write: asked before each write that follows another call.
  std::function<bool()> may_write = [] { return true; };
  // For the finalizers of others on a NodeFence that is over, when its node has to be failed over again.
  absl::Duration others_time = absl::Minutes(1);
};

class KubeActions {
 public:
  // `self` is this replica's name in the lease.
  KubeActions(kube::KubeClient& client, kube::LeaseName lease, std::string self,
              absl::Duration lease_duration, Executor& executor = RealExecutor(), CallRules rules = {})
      : client_(client),
        lease_(std::move(lease)),
        self_(std::move(self)),
        duration_(lease_duration),
        executor_(executor),
        rules_(std::move(rules)),
        times_(rules_.first_timeout) {}

  absl::StatusOr<LeaseSeen> ReadLease();
  // GONE: there is no such Node.
  Answer ReadKubelet(const fencing::ReadKubelet& call);
  Answer RenewLease(const WriteLease& call);
  // Releases the lease if this replica holds it, so that another need not wait for its end.
  void LeaveLease();

  // A NodeFence as the watch has it; null: it is gone. What is written over it goes by that, and how long it
  // has been released.
  void NoteRecord(const NodeId& node, const RecordFacts* seen);
  Answer PutRecord(const PutNodeFence& call, const Timeline& timeline);
  Answer RemoveRecord(const RemoveNodeFence& call);
  // `uid` and `taints` are those of the Node at the version that the call expects.
  Answer WriteTaint(const SetTaint& call, const Uid& uid, const std::string& taints);
  // Before it is removed by force: its status says that it has failed. Kubernetes replaces some Jobs' pods
  // only then. Of most Jobs the removal is enough, so that it is not allowed is logged, and the answer OK.
  Answer FailPod(const DeletePod& call);
  Answer RemovePod(const DeletePod& call);
  // One of these calls had too little time before: it may take longer than a first try.
  bool IsSlow(const DeletePod& call) const;
  // `name` and `version` are those of its PersistentVolume.
  Answer ChargeVolume(const fencing::ChargeVolume& call, const std::string& name, const Version& version);
  // Ends the actions and events that run, and later ones, at once; but not what is done to the lease.
  void EndActions() { end_.request_stop(); }
  // Best effort: a failure is logged at debug level only.
  void RecordEvent(kube::ObjectEvent event);

 private:
  struct SeenFinalizers {
    Version version;  // of the NodeFence that had them
    Finalizers finalizers;
  };
  struct Released {
    Uid uid;
    absl::Duration since;  // by the steady clock
  };

  kube::Limits CallLimits() const;
  // Nullopt: they are not known of this version of it.
  std::optional<Finalizers> FinalizersOf(const NodeFence& fence);
  // It was stored over the version that the fence has.
  void NoteStored(const NodeFence& fence, const kube::Json& object);
  // `action` with the limits of all its calls together; `call` as in CallTimes.
  Answer RunTimed(const std::string& call, const std::function<Answer(const kube::Limits&)>& action);
  Answer StoreRecord(const PutNodeFence& call, const Timeline& timeline, const kube::Limits& limits);
  Answer DeleteRecord(const RemoveNodeFence& call, const kube::Limits& limits);
  Answer StoreTaints(const SetTaint& call, const Uid& uid, const std::string& taints,
                     const kube::Limits& limits);
  absl::StatusOr<kube::Json> ChangeRecord(const NodeFence& fence, const Timeline& timeline,
                                          const kube::Limits& limits);
  // Since this replica first saw that it is over for us. Notes that it is.
  absl::Duration ReleasedFor(const NodeFence& fence);
  // If it is over for us, and others have had their time to finish with it.
  void DropStuckRecord(const kube::Json& object, const kube::Limits& limits);
  // CANCELLED: this replica may not write any more.
  absl::StatusOr<kube::Json> PatchIfLeading(const kube::ObjectRef& object, const kube::Json& merge,
                                            const kube::Preconditions& only_if, const kube::Limits& limits);

  kube::KubeClient& client_;
  const kube::LeaseName lease_;
  const std::string self_;
  const absl::Duration duration_;
  Executor& executor_;
  const CallRules rules_;
  CallTimes times_;
  std::stop_source end_;
  absl::Mutex mu_;
  kube::Lease last_ ABSL_GUARDED_BY(mu_);                             // as last read or written
  std::map<NodeId, SeenFinalizers> finalizers_ ABSL_GUARDED_BY(mu_);  // as last seen or written
  std::map<NodeId, Released> released_ ABSL_GUARDED_BY(mu_);          // that finalizers of others keep
};

}  // namespace lunkeeper::fencing
