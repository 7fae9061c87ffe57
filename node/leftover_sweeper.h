#pragma once
// Removes what no call will ever come for: grants that nobody uses, and failed devices that the orchestrator
// has forgotten. Both sweeps are called every few seconds from one thread; GrantMayStillCome may be called
// from any. A volume that a call is working on is left to that call. What it is given outlives it.

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/keyed_lock.h"
#include "devices/datapath/initiator.h"
#include "node/device_mounts.h"
#include "node/grant_source.h"
#include "node/stager.h"

namespace lunkeeper {

class LeftoverSweeper {
 public:
  // `locks` are the service's, by volume id; `grants` may be null. A failed device is left to the
  // orchestrator for `grace_period`.
  LeftoverSweeper(absl::Duration grace_period, Stager& stager, Initiator& initiator, Mounter& mounter,
                  GrantSource* grants, KeyedLock& locks)
      : grace_period_(grace_period),
        stager_(stager),
        initiator_(initiator),
        device_mounts_(initiator, mounter),
        grants_(grants),
        locks_(locks) {}

  // A stage failed, and its grant may be on its way: ReturnUnusedGrants has work for a while.
  void GrantMayStillCome();
  void ReturnUnusedGrants();
  void RemoveForgotten();

 private:
  // A controller notices within this time that a caller has gone.
  static constexpr absl::Duration kDoubt = absl::Seconds(30);

  absl::StatusOr<std::vector<VolumeId>> ListUnusedGrants(absl::Time deadline);
  absl::Status ReleaseUnusedGrants(absl::Time deadline);
  absl::StatusOr<std::vector<VolumeId>> ListForgotten();
  absl::Status RemoveDevice(const VolumeId& volume, absl::Time deadline);

  const absl::Duration grace_period_;
  Stager& stager_;
  Initiator& initiator_;
  DeviceMounts device_mounts_;
  GrantSource* const grants_;
  KeyedLock& locks_;
  std::map<VolumeId, absl::Time> forgotten_since_;  // the sweeping thread's

  absl::Mutex mutex_;
  // Until then a grant that no call waits for may still come; InfinitePast: none can. At the start there may
  // be grants of the process before this one.
  absl::Time in_doubt_until_ ABSL_GUARDED_BY(mutex_) = absl::Now() + kDoubt;
};

}  // namespace lunkeeper
