#pragma once
// Runs the core's actions: those on the API server and on arrays on threads of their own, so that a slow
// server holds up nothing else; the rest at once. Each action that the core waits for is answered once, on
// any thread, by `answered`; as failed, if it still waited when it was asked for anew.
//
// The loop's thread calls RunAction and AllowWritesUntil; the other methods are thread-safe. Nothing fails:
// an outcome is an answer. It must outlive `arrays`, whose workers run its calls; all else in ActionInputs
// outlives it.

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/tcp_prober.h"
#include "fencing/core/action.h"
#include "fencing/core/event.h"
#include "fencing/failover/array_hub.h"
#include "fencing/failover/clock.h"
#include "fencing/failover/failover.h"
#include "fencing/failover/fair_workers.h"
#include "fencing/failover/fence_board.h"
#include "fencing/failover/kube_actions.h"
#include "fencing/failover/object_cache.h"
#include "fencing/failover/portal_probes.h"

namespace lunkeeper::fencing {

struct ActionInputs {
  KubeActions& kube;
  ArrayHub& arrays;
  FenceBoard& board;
  const ObjectCache& objects;
  std::string self;  // this replica's name, for the arrays' records
  std::function<Timeline(const NodeId&)> timeline_of;
  std::function<void(const Action&, Answer, Instant asked)> answered;
  std::function<void(const NodeId&, std::function<void(const ReplicaVotes&)>)> ask_replicas;  // may be empty
  std::function<void(decltype(Event::what))> probed;  // of an answer to a probe
  Executor& executor;
  std::unique_ptr<Prober> prober;  // last: its thread uses the others
};

class ActionRunner {
 public:
  explicit ActionRunner(ActionInputs inputs);
  // Also waits for the other replicas that were asked.
  ~ActionRunner();

  // Ends the calls to the API server that run, and drops the waiting ones. Not for what other replicas were
  // asked: that writes nothing, and one of them may be dead.
  void Stop();

  void RunAction(const Action& action, Instant now);
  // Until when this replica may write to Kubernetes, by its last step. Calls whose turn comes later are
  // dropped.
  void AllowWritesUntil(Instant until) { writes_until_ = until; }
  bool MayWrite() const { return NowOn(inputs_.executor) < writes_until_.load(); }
  // Whether calls to the API server run or wait; work that is less urgent comes after them.
  bool IsBusy() const { return waiting_calls_ > 0; }

 private:
  void RunCall(const Action& action, const WriteLease& call, Instant now);
  void RunCall(const Action& action, const BeginTerm& call, Instant now);
  void RunCall(const Action& action, const Probe& call, Instant now);
  void RunCall(const Action& action, const ProbePortals& call, Instant now);
  void RunCall(const Action& action, const ReadKubelet& call, Instant now);
  void RunCall(const Action& action, const AskReplicas& call, Instant now);
  void RunCall(const Action& action, const PutNodeFence& call, Instant now);
  void RunCall(const Action& action, const RemoveNodeFence& call, Instant now);
  void RunCall(const Action& action, const FenceNode& call, Instant now);
  void RunCall(const Action& action, const UnfenceNode& call, Instant now);
  void RunCall(const Action& action, const SetTaint& call, Instant now);
  void RunCall(const Action& action, const DeletePod& call, Instant now);
  void RunCall(const Action& action, const ChargeVolume& call, Instant now);
  void RunCall(const Action& action, const Notify& call, Instant now);
  void RunCall(const Action&, const Report&, Instant) {}  // the recorder takes it

  struct WaitingCall {
    Action action;
    Instant asked;
    std::function<Answer()> call;
  };

  // `what`: what is asked for, of which object.
  void CallApi(const std::string& what, const Action& action, Instant now, std::function<Answer()> call);
  void PostCall(const Action& action, std::function<void()> job);
  // False: it has taken the place of one that waits, which `call` is now.
  bool AddWaiting(const std::string& what, WaitingCall& call);
  WaitingCall TakeWaiting(const std::string& what);
  void CallArray(const Action& action, const ArrayId& array, Instant now,
                 std::function<Answer(FenceControl&)> call);
  bool IsPolling();

  const ActionInputs inputs_;
  PortalProbes portals_;
  std::atomic<Instant> writes_until_ = Instant();  // long ago: it may not
  std::atomic<int> waiting_calls_ = 0;             // and running ones
  absl::Mutex waiting_mutex_;
  std::map<std::string, WaitingCall> waiting_ ABSL_GUARDED_BY(waiting_mutex_);
  absl::Mutex polls_mutex_;
  int polls_ ABSL_GUARDED_BY(polls_mutex_) = 0;  // questions to other replicas that are not answered yet
  const std::unique_ptr<Signal> poll_ended_;
  FairWorkers pod_workers_, slow_pod_workers_;
  const std::unique_ptr<Workers> api_workers_, read_workers_, plugin_taint_workers_, lease_workers_;
};

}  // namespace lunkeeper::fencing
