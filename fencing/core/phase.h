#pragma once
// How far a failover has come: what a NodeFence stores as status.phase. Each phase has a word, which is
// stored and which programs compare, and a sentence for people, which nobody reads back. Reconcile computes
// the phase from what is seen, and never from the phase before it: so a replica that takes over, or starts
// anew, goes on from wherever things are.
//
//   Requested ───► Refused                 there is no trace of such a node
//       │
//       ▼              Leaving             graceful: the pods are asked to leave, until a deadline
//   Reassessing           │                the reason is gone before anything was fenced
//       │  ▲              │
//       ▼  │              ▼
//      Fencing ◄──────────┘ ◄───────────┐  the arrays are asked, and have not all confirmed
//          │                            │
//          ▼                            │  an array has forgotten its fence, or has lost a part of it
//      Evacuating ◄──────────────────┐  │  confirmed: taint the node, delete the pods
//          │                         │  │
//          ▼                         │  │  a pod has landed on the fenced node after all
//      Replacing                     ├──┤  the pods' replacements do not all run yet
//          │                         │  │
//          ├────► AwaitingNode ──────┤  │  they run; the node is silent
//          │         ▲  │            │  │
//          │         │  ▼            │  │
//          ├────► Cleaning ──────────┤  │  its heartbeats arrive; leftovers go, then its fences
//          │         ▲               │  │
//          │         │               │  │
//          └────► Moved ─────────────┴──┘  they arrive, and somebody wants it fenced
//
// A record goes from Leaving and Reassessing when the node is well, or before anything is done where that may
// not begin after all; from Cleaning (through Reassessing) when the last fence is lifted, and from Replacing
// and AwaitingNode when the machine is gone for good.

#include <string_view>

namespace lunkeeper::fencing {

enum class Phase {
  kRequested,
  kRefused,
  kLeaving,
  kReassessing,
  kFencing,
  kEvacuating,
  kReplacing,
  kMoved,
  kAwaitingNode,
  kCleaning
};

// What is stored; that of kRequested is empty: a person who makes a NodeFence gives no status.
const char* ToWord(Phase phase);
// The phase of a stored word. A word that nobody knows counts as kRequested; the next write corrects it.
Phase ParsePhase(std::string_view word);
// For logs, events and `lunkeeper status`.
const char* ToSentence(Phase phase);

}  // namespace lunkeeper::fencing
