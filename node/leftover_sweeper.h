#pragma once
// Removes what no call will ever come for: grants that nobody uses, and devices that the orchestrator has
// forgotten. Both sweeps are called every few seconds from one thread; what a call tells it may come from
// any. A volume that a call is working on is left to that call. What it is given outlives it.

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/keyed_lock.h"
#include "base/steady_deadline.h"
#include "devices/datapath/initiator.h"
#include "node/device_mounts.h"
#include "node/grant_source.h"
#include "node/stager.h"

namespace lunkeeper {

class LeftoverSweeper {
 public:
  // `locks` are the service's, by volume id; `grants` may be null. A failed device is left to the
  // orchestrator for `grace_period`, and one that works for `idle_period` after the last call for it. A grant
  // that no call waits for may still come for `doubt`.
  LeftoverSweeper(absl::Duration grace_period, absl::Duration idle_period, absl::Duration doubt,
                  Stager& stager, Initiator& initiator, Mounter& mounter, GrantSource* grants,
                  KeyedLock& locks)
      : grace_period_(grace_period),
        idle_period_(idle_period),
        doubt_(doubt),
        stager_(stager),
        initiator_(initiator),
        mounter_(mounter),
        device_mounts_(initiator, mounter),
        grants_(grants),
        locks_(locks) {}

  // A stage or publish failed, and its grant may be on its way, or a grant could not be released:
  // ReturnUnusedGrants has work for a while.
  void GrantMayStillCome();
  // A call works on the volume, so the orchestrator has not forgotten it.
  void NoteCall(const VolumeId& volume);
  // A publish of it failed, and will be repeated.
  void NoteRefusal(const VolumeId& volume);
  void ReturnUnusedGrants();
  void RemoveForgotten();

 private:
  absl::StatusOr<std::vector<VolumeId>> ListUnusedGrants(absl::Time deadline);
  absl::Status ReleaseUnusedGrants(absl::Time deadline);
  // A volume, and whether its device has failed: each state has its own time.
  using Forgotten = std::pair<VolumeId, bool>;
  // A step of the clock must not pass for time without a call.
  using SteadyTime = std::chrono::steady_clock::time_point;

  absl::StatusOr<std::vector<Forgotten>> ListForgotten();
  bool IsRemembered(const Forgotten& forgotten);
  absl::Status RemoveDevice(const Forgotten& forgotten, absl::Time deadline);

  const absl::Duration grace_period_, idle_period_, doubt_;
  Stager& stager_;
  Initiator& initiator_;
  Mounter& mounter_;
  DeviceMounts device_mounts_;
  GrantSource* const grants_;
  KeyedLock& locks_;
  std::map<Forgotten, SteadyTime> forgotten_since_;  // the sweeping thread's

  absl::Mutex mutex_;
  // Until then a grant that no call waits for may still come; InfinitePast: none can. At the start there may
  // be grants of the process before this one.
  std::optional<SteadyDeadline> in_doubt_until_ ABSL_GUARDED_BY(mutex_) = SteadyDeadline(doubt_);
  std::set<VolumeId> called_ ABSL_GUARDED_BY(mutex_);  // since the last sweep began
  std::map<VolumeId, SteadyTime> refused_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
