#pragma once
// One gate for each volume, which is a lock with a queue. Calls that open, close or grow the volume's targets
// pass it one at a time, and calls that wait for a grant are served in the order of their arrival.
//
// Thread-safe. A gate exists while a call holds it or waits at it. A Pass is the lock's guard: one thread
// holds it, and its destructor leaves the gate.

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/steady_mutex.h"
#include "devices/types.h"

namespace lunkeeper {

// How long a call waits at a gate that is busy, unless it has a time of its own.
constexpr absl::Duration kGateTimeout = absl::Seconds(30);

class VolumeGates {
 private:
  struct Gate {
    bool busy = false;
    uint64_t changes = 0;          // how often something changed that those in line wait for
    std::deque<const void*> line;  // places, first to go first
    size_t users = 0;
  };

 public:
  // Being inside.
  class Pass {
   public:
    Pass(Pass&& other) noexcept;
    Pass& operator=(Pass&&) = delete;
    ~Pass();

   private:
    friend class VolumeGates;
    Pass(VolumeGates* gates, VolumeId volume) : gates_(gates), volume_(std::move(volume)) {}
    VolumeGates* gates_;
    VolumeId volume_;
  };

  // A place in a volume's line, from construction to destruction.
  class Place {
   public:
    Place(VolumeGates* gates, VolumeId volume);
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    // Inside, once this place is the first, nobody is inside, and something has changed since it was last
    // inside; nothing at the deadline.
    std::optional<Pass> Enter(absl::Time deadline);

   private:
    VolumeGates* const gates_;
    const VolumeId volume_;
    std::optional<uint64_t> seen_;
  };

  // Inside, regardless of the line; nothing at the deadline. A deadline in the past tries once.
  std::optional<Pass> Enter(const VolumeId& volume, absl::Time deadline);
  // Says that the volume may have become free: those in line look again.
  void WakeWaiters(const VolumeId& volume);
  // The volumes that somebody stands in line for.
  std::vector<VolumeId> ListAwaitedVolumes();

 private:
  Gate& AddUser(const VolumeId& volume) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveUser(const VolumeId& volume) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LeaveGate(const VolumeId& volume);

  SteadyMutex mu_;
  absl::flat_hash_map<VolumeId, std::unique_ptr<Gate>> gates_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lunkeeper
