#pragma once
// What nodes last said of their devices, for VolumeLocks. Heartbeats bring it, a few devices each.
// Thread-safe; never blocks.
//
// A node that is not to be trusted can say what it likes, and each change is a write to the API server: so of
// each volume a change is taken over at most each kSettles, and what a machine has more than its heartbeats
// name as present is forgotten. Nodes repeat what they say, so nothing is missed for long. A machine that has
// said nothing for kForget is forgotten: it died in use, and may never come back.

#include <map>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fencing/core/types.h"
#include "fencing/protocol/device_detail.h"

namespace lunkeeper::fencing {

class DetailsBoard {
 public:
  // `present`: all volumes that the node has.
  void OnDetails(const NodeId& node, const VolumeSet& present, const DeviceDetails& details, Instant now) {
    absl::MutexLock lock(&mutex_);
    ForgetMachines(now);
    const auto known = machines_.find(NameOf(node));
    if (present.empty() || (known != machines_.end() && known->second.node != node)) {
      if (known != machines_.end()) machines_.erase(known);
      if (present.empty()) return;
    }
    Machine& machine = machines_[NameOf(node)];
    machine.node = node;
    machine.said_at = now;
    std::erase_if(machine.volumes, [&](const auto& each) { return !present.contains(each.first); });
    for (const auto& [volume, detail] : details) {
      if (!present.contains(volume)) continue;
      const auto [kept, is_new] = machine.volumes.try_emplace(volume, Kept{detail, now});
      if (is_new || kept->second.detail == detail || now - kept->second.changed_at < kSettles) continue;
      kept->second = {detail, now};
    }
  }
  // Empty: the node said nothing of it; older ones never do.
  DeviceDetail Find(const NodeId& node, const VolumeId& volume) const {
    absl::MutexLock lock(&mutex_);
    const auto machine = machines_.find(NameOf(node));
    if (machine == machines_.end() || machine->second.node != node) return {};
    const auto kept = machine->second.volumes.find(volume);
    return kept == machine->second.volumes.end() ? DeviceDetail() : kept->second.detail;
  }

 private:
  static constexpr Span kSettles = 5_s, kForget = 3600_s, kSweepEvery = 60_s;
  struct Kept {
    DeviceDetail detail;
    Instant changed_at;
  };
  struct Machine {
    NodeId node;
    Instant said_at;
    std::map<VolumeId, Kept> volumes;
  };

  void ForgetMachines(Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (now - swept_at_ < kSweepEvery) return;
    swept_at_ = now;
    std::erase_if(machines_, [&](const auto& machine) { return now - machine.second.said_at >= kForget; });
  }

  mutable absl::Mutex mutex_;
  std::map<NodeName, Machine> machines_ ABSL_GUARDED_BY(mutex_);
  Instant swept_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper::fencing
