#pragma once
// Keeps new pods off a node whose plugin is silent: no volume of ours could be mounted there. The taint is
// beside that of a fence, and says nothing of the node's I/O: it fences nobody and moves no pod. A node may
// also be registered with it, so that no pod comes before its plugin does. Level-triggered, as decide.h is;
// nothing fails.

#include "fencing/core/state.h"

namespace lunkeeper::fencing {

// Puts the taint and removes it, on all nodes. At each tick of the leader, once the safety limits have
// counted the nodes.
void TendPluginTaints(State& state);

// The API server's answer.
void NotePluginTaint(State& state, const SetTaint& call, Outcome outcome);

// What the other replicas say of a node.
void NotePluginVotes(State& state, const AskReplicas& call, const ReplicaVotes& votes);

}  // namespace lunkeeper::fencing
