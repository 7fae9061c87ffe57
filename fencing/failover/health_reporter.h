#pragma once
// Says on claims and pods, by events, when a volume that they use is no longer well, and once more when it is
// well again. The reasons are those of CSI's health calls (docs/orchestrators.md). What it goes by is what
// the core knows, which is heartbeats, polls of the arrays and fences, and which pools are full. One thread
// uses it; nothing fails.
//
// A problem is said once, however long it lasts, and only after it has lasted; so is its end. A volume whose
// health comes and goes is said to be ill at most once a minute, and all volumes together have a bounded
// number of events a second: the rest follows. A replica that becomes the leader says again what still lasts.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fencing/core/state.h"
#include "fencing/failover/full_pools.h"
#include "fencing/failover/object_cache.h"
#include "fencing/kube/object_event.h"

namespace lunkeeper::fencing {

class HealthReporter {
 public:
  // `record` queues an event for Kubernetes; it must not block.
  HealthReporter(const State& state, const ObjectCache& objects, std::unique_ptr<FullPools> full_pools,
                 std::function<void(kube::ObjectEvent)> record)
      : state_(state), objects_(objects), full_pools_(std::move(full_pools)), record_(std::move(record)) {}

  // Compares the volumes' health with what was said. To be called every second or so by the leader.
  void ReportChanges();
  // This replica does not lead: nothing was said by it.
  void StopReporting();

 private:
  struct Problem {
    std::string reason, text;
    NodeId node;  // where; empty: everywhere
    Span lasts;   // before it is said
  };
  using Problems = std::map<VolumeId, Problem>;
  struct Volume {
    std::optional<Problem> problem;  // now
    Instant since;                   // it is so
    std::string said;                // the reason; empty: it is well
    std::optional<Instant> said_at;
  };

  Problems FindProblems() const;
  void AddFailing(const NodeId& id, const NodeEvidence& node, Problems& problems) const;
  void AddArraysAway(Problems& problems) const;
  void AddFullPools(Problems& problems) const;
  bool IsFenced(const NodeId& node, const VolumeId& volume) const;
  bool IsInUse(const VolumeId& volume) const;
  // Whether it is time to say how the volume is now.
  bool IsDue(const VolumeId& id, const Volume& volume) const;
  static bool IsOfPool(const Volume& volume);
  void Say(const VolumeId& id, Volume& volume);
  void AddEvent(const char* kind, const std::string& object, const Uid& uid, const Volume& volume);

  const State& state_;
  const ObjectCache& objects_;
  const std::unique_ptr<FullPools> full_pools_;
  const std::function<void(kube::ObjectEvent)> record_;
  std::map<VolumeId, Volume> volumes_;  // those of which something was said, or will be
};

}  // namespace lunkeeper::fencing
