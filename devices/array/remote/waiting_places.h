#pragma once
// Who may wait at an agent for a volume. Each waiting call holds a thread of the server, so there are only so
// many places; and neither a cluster nor a node may take them all. Thread-safe, never blocks.

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "devices/node_id.h"
#include "devices/types.h"

namespace lunkeeper {

struct WaitingLimits {
  int all = 512, per_cluster = 256, per_machine = 64;
};

class WaitingPlaces {
 public:
  explicit WaitingPlaces(const WaitingLimits& limits) : limits_(limits) {}

  using Place = std::shared_ptr<void>;  // returned when it is destroyed
  // Null: there is none left for this machine.
  Place TakePlace(const ClusterId& cluster, const NodeId& node) {
    const Machine machine(cluster.value(), MachineOf(node));
    const absl::MutexLock lock(&mutex_);
    if (all_ >= limits_.all || clusters_[machine.first] >= limits_.per_cluster ||
        machines_[machine] >= limits_.per_machine)
      return nullptr;
    AddTo(machine, 1);
    // Any pointer that is not null: the deleter is what counts.
    return Place(this, [this, machine](void*) {
      const absl::MutexLock again(&mutex_);
      AddTo(machine, -1);
    });
  }

 private:
  using Machine = std::pair<std::string, std::string>;  // cluster and name
  void AddTo(const Machine& machine, int change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    all_ += change;
    if ((clusters_[machine.first] += change) == 0) clusters_.erase(machine.first);
    if ((machines_[machine] += change) == 0) machines_.erase(machine);
  }

  const WaitingLimits limits_;
  absl::Mutex mutex_;
  int all_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int> clusters_ ABSL_GUARDED_BY(mutex_);
  std::map<Machine, int> machines_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
