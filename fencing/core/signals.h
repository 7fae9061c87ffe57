#pragma once
// The columns of the evidence table: what all channels show of one node at one moment. Plain values.

#include <algorithm>
#include <set>

#include "fencing/core/types.h"

namespace lunkeeper::fencing {

enum class Network { kNeverArrived, kArrives, kClosed, kSilent };
enum class Storage { kUnknown, kAlive, kSilent };
enum class Kernel { kUnknown, kAnswers, kUnanswered };
enum class Kubelet { kUnknown, kReady, kNotReady };

// One node at one moment: the columns of the evidence table.
struct Signals {
  Network network = Network::kNeverArrived;
  Span silent_for;
  Span here_for;  // it has shown life on some channel, without a long gap before the last sign
  Storage storage = Storage::kUnknown;
  Span storage_silent_for;  // no heartbeat and no I/O, on every array that is up
  // On every channel by which it was ever heard.
  Span quiet_for() const {
    return network == Network::kNeverArrived ? storage_silent_for : std::min(silent_for, storage_silent_for);
  }
  Span io_quiet_for;  // 0: nobody can say, of some of its volumes
  // No part of an array that has a grant of the node failed to answer; its I/O there would be in neither of
  // the two above.
  Span io_seen_for = Span::max();
  Kernel kernel = Kernel::kUnknown;
  // It answered probes shortly before the silence, and does not now, if only as there is no way to it.
  bool kernel_gone = false;
  Kubelet kubelet = Kubelet::kUnknown;
  Span not_ready_for;
  Span unready_for;            // of that: Kubernetes has called this very node not ready; 0: it does not
  bool late_lease = false;     // it is called ready still, and its lease alone says that it is not
  Span hung_for;               // the node's own view of its kubelet and runtime; 0: they answer
  bool met = false;            // this observer saw a heartbeat of it, by the network or on an array
  bool together = false;       // its channels fell silent within Settings::together
  bool renewed_since = false;  // its kubelet renewed its lease after that
  std::set<ArrayId> lost;      // arrays that hear other nodes and not this one, and whose volumes hang here
};

}  // namespace lunkeeper::fencing
