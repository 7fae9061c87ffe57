#pragma once
// The evidence table, row by row: what a node's signals mean, and what is to be done. A pure function.

#include <string_view>

#include "fencing/core/evidence.h"
#include "fencing/core/settings.h"

namespace lunkeeper::fencing {

enum class Response {
  kNothing,     // the node is well
  kHold,        // something is wrong, or not known; wait
  kAskToLeave,  // ask the pods to leave, fence at a deadline
  kFence
};

struct Classification {
  Response response = Response::kNothing;
  std::string_view what;    // plain English, for people; a literal
  bool fast = false;        // by the row of 2.5 s, which asks for the observer's self-test too
  bool plugin = false;      // the plugin alone is away, as in an upgrade
  bool works = false;       // its work and its kubelet are well, as far as this observer sees
  bool unmet = false;       // this observer never had a sign of life of it
  bool late_lease = false;  // its heartbeats arrive; that its lease is late is all there is against it
  bool despite_io = false;  // by Kubernetes' word alone: Partitioned::kTrustKubernetes
  bool alive = false;       // it shows life, so its pods may work where they are
};

// `self_test`: the observer has passed it, or it was not asked yet; else the fast row is left out.
Classification Classify(const Signals& signals, const Settings& settings, bool self_test = true);

// Whether a classification's text is that of one of the two rows of a dead node, the fast and the slow one.
bool SaysDead(std::string_view what);

}  // namespace lunkeeper::fencing
