#pragma once
// The failover core: a deterministic state machine, Step(Event) → actions. It reads no clock and does no I/O;
// time is what the events say it is. The same core runs in every controller replica: all of them take in the
// evidence, and only the one that holds the lease acts. One thread owns it. It never fails: an event that
// makes no sense changes nothing.
//
// Order of a failover: decide → record → fence and verify → taint → delete the pods → watch the
// replacements → lift the fence when the node is clean. No pod is deleted by force before the array has
// confirmed that every one of its volumes is fenced.

#include <string>
#include <utility>
#include <vector>

#include "fencing/core/action.h"
#include "fencing/core/election.h"
#include "fencing/core/event.h"
#include "fencing/core/settings.h"
#include "fencing/core/state.h"

namespace lunkeeper::fencing {

class Core {
 public:
  // `self` is this replica's name in the lease, unique for each start of a process.
  Core(const Settings& settings, std::string self);

  std::vector<Action> Step(Event event);

  bool Leads() const { return election_.Leads(state_.now); }
  // For `lunkeeper status`.
  const State& state() const { return state_; }

 private:
  void On(const Tick&);
  void On(Heartbeat heartbeat) { state_.evidence.On(std::move(heartbeat), state_.now); }
  void On(const StreamClosed& closed) { state_.evidence.On(closed, state_.now); }
  void On(const StorageHeartbeats& heartbeats) { state_.evidence.On(heartbeats, state_.now); }
  void On(const ArrayView& view);
  void On(const ArrayLost& lost) { state_.evidence.On(lost, state_.now); }
  void On(const ArrayGone& gone);
  void On(const VolumeWanted& wanted);
  void On(const ProbeResult& result) { state_.evidence.On(result, state_.now); }
  void On(const ApiSynced&);
  void On(const ApiAlive&) { state_.evidence.ApiAnswers(state_.now); }
  void On(const ApiLost&) { state_.evidence.ApiIsLost(); }
  void On(const KubeletLease& lease) { state_.evidence.On(lease, state_.now); }
  void On(const NodeSeen& seen);
  void On(const NodeGone& gone);
  void On(const PodSeen& seen) { state_.cluster.Put(seen.pod); }
  void On(const PodGone& gone) { state_.cluster.Remove(gone.pod); }
  void On(const FenceSeen& seen);
  void On(const FenceGone& gone);
  void On(const LeaseSeen& seen) { election_.On(seen, state_.now); }
  void On(const Done& done);

  void Answered(const WriteLease& write, const Done& done);
  void Answered(const BeginTerm& call, const Done& done);
  void Answered(const FenceNode& call, const Done& done);
  void Answered(const UnfenceNode& call, const Done& done);
  void Answered(const SetTaint& call, const Done& done);
  void Answered(const PutNodeFence& call, const Done& done);
  void Answered(const RemoveNodeFence& call, const Done& done);
  // Seen when its pod is; and the other three have no answer.
  void Answered(const DeletePod&, const Done&) {}
  void Answered(const Probe&, const Done&) {}
  void Answered(const Notify&, const Done&) {}
  void Answered(const Report&, const Done&) {}
  void LoseTerm(const ArrayId& array);
  void Lead();
  void BeginTerms();
  // The world is known well enough, and it is ours to act on it.
  bool MayAct() const { return Leads() && synced_; }
  void ReconcileNode(const NodeId& node);
  void ReconcileAll();

  State state_;
  Election election_;
  bool synced_ = false;
  bool led_ = false;
  std::optional<Instant> refused_at_;  // by an array, for an old term
};

}  // namespace lunkeeper::fencing
