#pragma once
// One NodeFence and what is seen of its node, put together once at the start of each Reconcile, so that all
// its steps decide on the same facts. Pure questions on them follow; only AssessNode writes to the state.

#include <map>
#include <vector>

#include "fencing/core/decide.h"
#include "fencing/core/phase.h"

namespace lunkeeper::fencing {

struct Assessment {
  NodeFence record;        // as it is stored
  VolumesByArray awaited;  // of the record: at configured arrays that have, or shall have, a fence
  Signals signals;
  Classification classification;
  Plan plan;                             // the pods to move, as things are now
  std::map<ArrayId, ArrayFence> fences;  // in force
  // Its machine's, put there for this record: by hand, and not to be lifted. Each node of that name is
  // closed.
  bool closes_machine = false;
  bool lifting = false;  // someone wants it lifted
  bool leaving = false;  // the pods are to leave by themselves first
  bool acting = false;   // there is reason to fence, now
  // Where evidence alone would begin it: whether it may, now. Refused: so it is neither acting nor leaving.
  Permission permission = Permission::kGiven;
  // That the node is dead has been decided: what only a dead node loses may go.
  bool death_decided = false;
};

// Starts the clock of a graceful move when it sees one begin. Where nothing of the record has begun yet, it
// asks again whether that may (AskToBegin), as the answers from before it was written may be old. Where pods
// without a volume would go for another reason than that of the record, it asks whether they may, until they
// may.
Assessment AssessNode(State& state, const NodeFence& record);

// The record was begun for another reason than what the evidence says now, such as a lost path of a node that
// is silent by now, or a fence that was found at an array. More than it has is a decision of its own, and so
// are pods that no fence keeps from doing their work. Which of its two rows finds a node dead is no other
// reason.
bool IsAnotherDecision(const Assessment& seen);
Phase PhaseOf(const State& state, const Assessment& seen);
// Its reason is gone, or a person deleted it.
bool WantsLifting(const State& state, const NodeFence& record);
// A person made it, or made it his own; he wants it until he deletes it.
bool IsByPerson(const NodeFence& record);
// A person asked for this very record, and so means the machine; it did not come from its machine's fence.
bool IsOfMachine(const NodeFence& record);
// The arrays of the record that have not confirmed what is asked of them.
std::vector<ArrayId> UnconfirmedArrays(const State& state, const Assessment& seen);
// Adds what is to be fenced. Written before any of it is asked for: the arrays that are up count as asked
// from then on, and may have a fence even if no answer of theirs comes.
void AddToRecord(const State& state, const VolumesByArray& volumes, NodeFence& record);
// An array has a fence of it, or had one.
bool WasFenced(const Assessment& seen);
// The arrays have confirmed that all of `volumes` are fenced from the node.
bool IsFenced(const Assessment& seen, const VolumesByArray& volumes);
// The pods that are still to go: those whose volumes are all fenced, and those without a volume once all that
// is to be fenced of their dead node is. One that lands on the fenced node later is among them; one that is
// deleted is not, though a finalizer may keep its object.
std::vector<const Pod*> PodsToDelete(const State& state, const Assessment& seen);
// The pods of the node's name are its own; or no instance of its machine has anything left at these arrays.
bool IsWholeMachineCut(const State& state, const NodeId& node, const VolumesByArray& volumes);
// The node will not come back as what it was: its object is deleted, or another instance has its name.
bool IsGone(const State& state, const Assessment& seen);
// Somebody asked for the fence of a node of which there is no trace: no heartbeat, grant, fence or object.
bool IsUnknown(const State& state, const NodeFence& record);

}  // namespace lunkeeper::fencing
