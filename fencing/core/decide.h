#pragma once
// From evidence to a recorded decision. Level-triggered: the leader's core calls these for each node at each
// tick, and they send what is missing through the outbox. Nothing fails: a lost call is made again.

#include "fencing/core/state.h"

namespace lunkeeper::fencing {

// Records a NodeFence where there is none and one is due: by evidence and past the limits, by an
// administrator's taint, on demand for a volume, or because the array has a fence that nobody recorded.
void Decide(State& state, const NodeId& node, Classification classification);

enum class Permission {
  kGiven,
  kAwaited,  // the API server or the other replicas are being asked, or a write is under way: ask again
  kRefused   // it has said why
};

// Whether `volumes` may be fenced from the node on evidence: no limit forbids it, and the API server and the
// other replicas say nothing against it, who are asked unless they have just answered. While the self-test of
// the fast row fails, the slow one may find the node dead.
Permission AskToBegin(State& state, const NodeId& node, Classification classification,
                      const VolumesByArray& volumes);
inline bool MayBegin(State& state, const NodeId& node, const Classification& classification,
                     const VolumesByArray& volumes) {
  return AskToBegin(state, node, classification, volumes) == Permission::kGiven;
}

// What became of the write of a record. If the API server has refused a new one several times, or found one
// there that nobody sees, people have to know: its failover does not begin.
void NoteRecordAnswer(State& state, const PutNodeFence& call, Outcome outcome);

// Removes taints whose NodeFence is gone, or is of another instance.
void SweepTaints(State& state);

}  // namespace lunkeeper::fencing
