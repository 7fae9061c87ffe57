#pragma once
// What an operator may tune, with defaults that suit the timing promised in the documentation. All but those
// of leadership may change while the core runs (Core::ChangeSettings).

#include <set>
#include <string>

#include "fencing/core/types.h"

namespace lunkeeper::fencing {

// What becomes of a node that the control plane has lost, and that works as far as anybody else sees.
enum class Partitioned {
  kHold,            // nothing, for ever
  kFence,           // it is fenced after partition_grace without I/O
  kTrustKubernetes  // after partition_grace in which Kubernetes has lost it, although its I/O goes on
};
// When pods that crash-loop are replaced.
enum class CrashLoops { kNever, kAfterOutage, kAlways };

struct Settings {
  // Detection.
  Span tick = 250_ms;
  Span stall = 1_s;             // a gap between ticks that makes the observer distrust its own windows
  Span silence = 2500_ms;       // of a channel whose heartbeats come each 500 ms
  Span others_heard = 1500_ms;  // an array that hears no other node for so long says nothing of this one
  Span look = 500_ms;           // between looks at an array; the next one may show what the last one did not
  Span array_lost = 5_s;        // without an answer; or twice as long as the last look took
  Span path_lost = 1_s;         // of failing I/O, as the node has it, while the array sees none
  Span slow_silence = 10_s;     // where no probe says that the kernel is dead
  Span never_met_silence = 30_s;  // of a node whose heartbeats never reached this observer
  Span probe_after = 1_s;         // of silence; and then each probe_period
  Span probe_period = 500_ms;
  Span probe_well = 30_s;         // between probes of a node that is well
  Span probe_fresh = 60_s;        // an older answer does not show that the kernel can be reached
  Span together = 3_s;            // a dead node's channels fall silent within this time of each other
  Span lease_delay = 1_s;         // of the last lease that a dying kubelet renewed, until it is seen
  Span storage_late = 1500_ms;    // of a node that only the arrays hear: it is probed
  int probes_unanswered = 2;      // in a row
  Span observer_lost = 5_s;       // by all arrays, or by the API server, as it is without an answer
  Span kubelet_stale = 12_s;      // its lease is renewed each 10 s
  Span kubelet_read = 1_s;        // how long its answer counts; one that takes longer is reported
  Span votes_last = 1_s;          // the same of what other replicas say; either waits for the other
  Span probation = 60_s;          // of a kubelet or runtime that hangs
  Span partition_grace = 60_s;    // of a node cut off from the control plane
  Span graceful_deadline = 1_s;   // pods whose I/O hangs seldom leave by themselves
  Span asked_deadline = 120_s;    // the same, where a person asked for it: those pods are well
  Span mount_death = 60_s;        // a node that dies so soon after it took a volume is charged to that volume
  Span mount_trusted = 3600_s;    // a node that lives with a held-back volume for so long clears it
  Span one_outage = 10_s;         // nodes that die within this time of each other had one fault in common
  Span forget = 3600_s;           // a node that is gone, and showed no sign for so long
  Span kick_window = 300_s;       // after an outage in which crash-looping pods are kicked, each once
  int kicks = 20;                 // in one such window, at most
  Span crash_loop_over = 3600_s;  // without one the pods of a line are well again

  // Policies.
  Partitioned partitioned = Partitioned::kFence;
  CrashLoops crash_loops = CrashLoops::kAfterOutage;
  bool move_idle = true;  // also off a lost path on which no I/O waits yet

  // Nodes whose plugin is silent.
  Span plugin_not_ready = 30_s;  // and they are tainted; 0: never

  // SafetyLimits.
  bool paused = false;
  bool dry_run = false;
  int budget_percent = 20;  // of the nodes with grants, at least one
  Span budget_window = 300_s;
  int mass_percent = 30;  // of the nodes, and three: so many in trouble at once share a fault
  Span mass_window = 60_s;
  bool one_by_one = true;  // over the budget and the self-test passed; or stop
  Span one_by_one_pause = 30_s;
  int self_test_percent = 30;  // of the other nodes must send heartbeats

  // Which pods.
  // A kind of any API group, or with its group (Cluster.postgresql.cnpg.io), or *: any but those whose pods
  // belong to their node.
  std::set<std::string> owner_kinds = {"StatefulSet", "ReplicaSet", "Job"};
  bool opt_in = false;  // only pods that say so

  // Leadership.
  Span lease = 4_s;
  Span lease_margin = 1_s;
  Span lease_renew = 1_s;
  Span sights_every = 1_s;     // the leader asks the others what they see
  Span outseen = 3_s;          // by another replica for so long: that one is to lead
  Span sighted = 10_s;         // a replica that began to watch later does not know yet who is silent
  Span yield_pause = 60_s;     // a replica yields at most once in this time
  Span yield_waits = 30_s;     // for a failover that is under way
  Span retry = 500_ms;         // after a failed action
  Span answer_timeout = 30_s;  // with an action that is never answered; calls may take up to 24 s
};

}  // namespace lunkeeper::fencing
