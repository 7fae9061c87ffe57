#pragma once
// The failover core: a deterministic state machine, Step(Event) → actions. It reads no clock and does no I/O;
// time is what the events say it is. The same core runs in every controller replica: all of them take in the
// evidence, and only the one that holds the lease acts. One thread owns it. It never fails: an event that
// makes no sense changes nothing.
//
// Order of a failover: decide → record → ask again, if that took long → fence and verify → taint → delete the
// pods → watch the replacements → lift the fence when the node is clean. No pod is deleted by force before
// the array has confirmed that every one of its volumes is fenced.

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

  // From the next event on. What was begun goes on under the new ones. The times of the lease stay as they
  // are.
  void ChangeSettings(const Settings& settings);

  bool Leads() const { return election_.HoldsLease(state_.now); }
  // The replica that has the lease, as far as this one knows; empty: none.
  const std::string& Leader() const { return election_.holder(); }
  // For `lunkeeper status`.
  const State& state() const { return state_; }
  // What it sees, for the replica that leads; none: it could not lead now.
  std::optional<ReplicaSight> Sight() const;

 private:
  void HandleEvent(const Tick&);
  void HandleEvent(Heartbeat heartbeat) { state_.evidence.NoteEvent(std::move(heartbeat), state_.now); }
  void HandleEvent(const StreamClosed& closed) { state_.evidence.NoteEvent(closed, state_.now); }
  void HandleEvent(const ArrayView& view);
  void HandleEvent(const ArrayLost& lost) { state_.evidence.NoteEvent(lost, state_.now); }
  void HandleEvent(const ArrayConfigured& configured) { state_.arrays.NoteConfigured(configured.array); }
  void HandleEvent(const ArrayGone& gone);
  void HandleEvent(const VolumeWanted& wanted);
  void HandleEvent(const ProbeAnswer& result) { state_.evidence.NoteEvent(result, state_.now); }
  void HandleEvent(const PortalAnswered& answer) { state_.evidence.NoteEvent(answer, state_.now); }
  void HandleEvent(const ApiSynced&);
  void HandleEvent(const ApiAlive&) { state_.evidence.ApiAnswers(state_.now); }
  void HandleEvent(const ApiLost&) { state_.evidence.ApiIsLost(); }
  void HandleEvent(const KubeletLease& lease);
  void HandleEvent(const NodeSeen& seen);
  void HandleEvent(const NodeGone& gone);
  void HandleEvent(const PodSeen& seen) { state_.cluster.StoreObject(seen.pod); }
  void HandleEvent(const PodGone& gone) { state_.cluster.Remove(gone.pod); }
  void HandleEvent(const VolumeCharged& seen);
  void HandleEvent(const FenceSeen& seen);
  void HandleEvent(const FenceGone& gone);
  void HandleEvent(const LeaseSeen& seen) { election_.NoteLease(seen, state_.now); }
  void HandleEvent(const Done& done);

  void HandleAnswer(const WriteLease& write, const Done& done);
  void HandleAnswer(const BeginTerm& call, const Done& done);
  void HandleAnswer(const ReadKubelet& call, const Done& done);
  void HandleAnswer(const AskReplicas& call, const Done& done);
  void HandleAnswer(const FenceNode& call, const Done& done);
  void HandleAnswer(const UnfenceNode& call, const Done& done);
  void HandleAnswer(const SetTaint& call, const Done& done);
  void HandleAnswer(const PutNodeFence& call, const Done& done);
  void HandleAnswer(const RemoveNodeFence& call, const Done& done);
  void HandleAnswer(const ChargeVolume& call, const Done& done);
  void HandleAnswer(const DeletePod& call, const Done& done);
  // They have no answer.
  void HandleAnswer(const Probe&, const Done&) {}
  void HandleAnswer(const ProbePortals&, const Done&) {}
  void HandleAnswer(const Notify&, const Done&) {}
  void HandleAnswer(const Report&, const Done&) {}
  void LoseTerm(const ArrayId& array);
  void AskForSights();
  std::optional<WriteLease> DueLeaseWrite();
  void ReportLeadership(bool blind);
  void ActAsLeader();
  // What the evidence says of each node, in their order, for the safety limits too.
  std::vector<Classification> ClassifyNodes();
  void BeginTerms();
  // It knows what it sees, and the API server brings it what changes.
  bool CouldLead() const;
  // The world is known well enough, and it is ours to act on it.
  bool MayAct() const { return Leads() && synced_; }
  // What waited for an answer goes on at once: its decision, or its fence.
  void DecideAndReconcile(const NodeId& node, const Classification& classification);
  void ReconcileNode(const NodeId& node);
  void ReconcileFenced(const NodeId& fenced);
  void ReconcileAll();

  State state_;
  Election election_;
  const std::string self_;
  bool synced_ = false;
  bool led_ = false;
  Instant forgot_at_, classified_at_;
  std::optional<Instant> refused_at_;  // by an array, for an old term
};

}  // namespace lunkeeper::fencing
