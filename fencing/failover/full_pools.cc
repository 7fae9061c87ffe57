#include "fencing/failover/full_pools.h"

#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/periodic.h"
#include "base/status_macros.h"
#include "devices/array/full_pool.h"

namespace lunkeeper::fencing {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(15);

// A pool that was full is so until it has twice as much room: at the edge it would come and go with each
// write, and with it the events of all its volumes.
constexpr uint64_t kRoomAgainBytes = 2 * kFullPoolBytes;

absl::StatusOr<VolumeSet> ListThinVolumes(VolumeStore& store) {
  VolumeSet thin;
  std::string token;
  do {
    ASSIGN_OR_RETURN(const Page<Volume> page, store.ListVolumes(token, 0));
    for (const Volume& volume : page.items)
      if (volume.spec.provisioning == Provisioning::kThin) thin.insert(volume.id);
    token = page.next_token;
  } while (!token.empty());
  return thin;
}

class FullPoolsWatch final : public FullPools {
 public:
  FullPoolsWatch(lunkeeper::Arrays& arrays, Executor& executor)
      : arrays_(arrays),
        looks_(
            kLookEvery, [this] { LookAtAll(); }, executor) {}

  void SetWanted(bool wanted) override {
    {
      absl::MutexLock lock(&mutex_);
      if (std::exchange(wanted_, wanted) == wanted) return;
      if (!wanted) volumes_ = std::make_shared<const VolumeSet>();
    }
    if (wanted) looks_.Wake();
  }
  std::shared_ptr<const VolumeSet> ListVolumes() override {
    absl::MutexLock lock(&mutex_);
    return volumes_;
  }

 private:
  void LookAtAll() {
    if (!IsWanted()) return;
    std::map<std::string, VolumeSet> full;
    VolumeSet all;
    for (const NamedArray& array : arrays_.ListArrays()) {
      absl::StatusOr<VolumeSet> found = LookAt(array);
      if (!found.ok()) found = full_[array.name];  // what was true last is the best there is
      if (found->empty()) continue;
      all.insert(found->begin(), found->end());
      full[array.name] = *std::move(found);
    }
    full_ = std::move(full);
    absl::MutexLock lock(&mutex_);
    if (wanted_) volumes_ = std::make_shared<const VolumeSet>(std::move(all));
  }

  bool IsWanted() {
    absl::MutexLock lock(&mutex_);
    return wanted_;
  }

  // Empty where the pool has room.
  absl::StatusOr<VolumeSet> LookAt(const NamedArray& array) const {
    ASSIGN_OR_RETURN(const PoolCapacity pool, array.array->volumes().GetCapacity());
    const uint64_t enough = full_.contains(array.name) ? kRoomAgainBytes : kFullPoolBytes;
    if (pool.available_bytes >= enough) return VolumeSet();
    return ListThinVolumes(array.array->volumes());
  }

  lunkeeper::Arrays& arrays_;
  std::map<std::string, VolumeSet> full_;  // by array, at the last look; used by its thread only
  absl::Mutex mutex_;
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const VolumeSet> volumes_ ABSL_GUARDED_BY(mutex_) = std::make_shared<const VolumeSet>();
  Periodic looks_;  // last: its thread uses the other members
};

}  // namespace

std::unique_ptr<FullPools> WatchFullPools(lunkeeper::Arrays& arrays, Executor& executor) {
  return std::make_unique<FullPoolsWatch>(arrays, executor);
}

}  // namespace lunkeeper::fencing
