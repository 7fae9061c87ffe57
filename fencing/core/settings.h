#pragma once
// What an operator may tune, with defaults that suit the timing promised in the documentation. Constant after
// construction of the core; durations in milliseconds.

#include <set>
#include <string>

#include "fencing/core/types.h"

namespace lunkeeper::fencing {

struct Settings {
  // Detection.
  Millis tick = 250;
  Millis stall = 1000;             // a gap between ticks that makes the observer distrust its own windows
  Millis silence = 2500;           // of a channel whose heartbeats come each 500 ms
  Millis path_lost = 1000;         // of failing I/O, as the node has it, while the array sees none
  Millis slow_silence = 10000;     // where no probe says that the kernel is dead
  Millis unheard_silence = 30000;  // of a node this observer never heard
  Millis probe_after = 1000;       // of silence; and then each probe_period
  Millis probe_period = 500;
  int probes_unanswered = 2;        // in a row
  Millis kubelet_stale = 12000;     // its lease is renewed each 10 s
  Millis probation = 60000;         // of a kubelet or runtime that hangs
  Millis partition_grace = 60000;   // without I/O, of a node cut off from the control plane
  bool fence_partitioned = true;    // after that grace; or hold for ever
  Millis graceful_deadline = 1000;  // pods whose I/O hangs seldom leave by themselves
  Millis kick_window = 300000;      // after an outage in which crash-looping pods are kicked, each once
  int kicks = 20;                   // in one such window, at most

  // SafetyLimits.
  bool paused = false;
  bool dry_run = false;
  int budget_percent = 20;  // of the nodes with grants, at least one
  Millis budget_window = 300000;
  bool one_by_one = true;  // over the budget and the self-test passed; or stop
  Millis one_by_one_pause = 30000;
  int self_test_percent = 30;  // of the other nodes must be heard

  // Which pods.
  std::set<std::string> owner_kinds = {"StatefulSet", "ReplicaSet", "Job"};
  bool opt_in = false;  // only pods that say so

  // Leadership.
  Millis lease = 4000;
  Millis lease_margin = 1000;
  Millis lease_renew = 1000;
  Millis retry = 500;             // after a failed action
  Millis answer_timeout = 20000;  // with an action that is never answered
};

}  // namespace lunkeeper::fencing
