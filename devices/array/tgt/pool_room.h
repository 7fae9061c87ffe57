#pragma once
// How much of a pool is promised, to whom, and whether it may promise or give more. Thread-safe.
//
// Promised is what volumes and snapshots would take if they were written full and shared nothing. What is
// being made counts from its reservation on, so that calls at the same time do not exceed a limit together.
// So does the space that is taken at once, until it is taken: where a copy of it is under way, what it has
// taken already counts twice, and a call that wants space too may be refused for that long.

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/image_store.h"

namespace lunkeeper {

// What may be promised to each cluster; 0: any number of bytes.
struct ClusterQuotas {
  uint64_t others = 0;  // to each that is not named
  std::map<ClusterId, uint64_t> named;
  uint64_t Of(const ClusterId& cluster) const {
    const auto found = named.find(cluster);
    return found == named.end() ? others : found->second;
  }
};

struct PoolLimits {
  double overcommit = 0;      // the pool's sizes that may be promised; 0: any number
  int keep_free_percent = 0;  // of the pool, that new volumes, growth and snapshots leave free
  ClusterQuotas quotas = {};
};

struct PoolUse {
  uint64_t total_bytes = 0;
  uint64_t used_bytes = 0;
  std::map<ClusterId, uint64_t> promised_bytes;  // of each cluster that has something
  uint64_t volumes = 0, snapshots = 0;           // of all clusters
};

class PoolRoom {
 public:
  // `images` and `catalogue` outlive it.
  PoolRoom(const PoolLimits& limits, const ImageStore& images, Catalogue& catalogue)
      : limits_(limits), images_(images), catalogue_(catalogue) {}

  // The room outlives it.
  struct Reservation {
    std::shared_ptr<void> promise;  // until what it is for is in the catalogue, or is given up
    std::shared_ptr<void> space;    // until that is taken, or is given up
  };
  // Before something of `cluster` is made or grows that promises `promised` bytes more and takes `taken` of
  // them at once. `what` names it in an error. RESOURCE_EXHAUSTED: there is no room for that.
  absl::StatusOr<Reservation> Reserve(const ClusterId& cluster, const std::string& what, uint64_t promised,
                                      uint64_t taken);
  // Whether so many bytes may be taken at once. RESOURCE_EXHAUSTED: there is no room for that.
  absl::Status CheckFree(const std::string& what, uint64_t taken) const;
  absl::StatusOr<PoolUse> MeasureUse() const;
  // The pool's, with what Reserve would let a new thick volume of `cluster` have now.
  absl::StatusOr<PoolCapacity> MeasureCapacity(const ClusterId& cluster) const;

 private:
  absl::Status CheckPromise(const ClusterId& cluster, const std::string& what, uint64_t promised,
                            const PoolCapacity& capacity) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckFree(const std::string& what, uint64_t taken, const PoolCapacity& capacity) const;
  // To each cluster, with what is reserved. What is just being stored may count twice.
  absl::StatusOr<std::map<ClusterId, uint64_t>> SumPromised() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t KeptFree(const PoolCapacity& capacity) const;

  const PoolLimits limits_;
  const ImageStore& images_;
  Catalogue& catalogue_;
  mutable absl::Mutex mu_;
  std::map<ClusterId, uint64_t> reserved_ ABSL_GUARDED_BY(mu_);
  uint64_t reserved_space_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lunkeeper
