#pragma once
// How much of a pool is promised, and whether it may promise or give more. Thread-safe.
//
// Promised is what all volumes and snapshots would take if they were written full and shared nothing. Two
// calls at the same time may both pass a check that only one of them should have: the limits are an
// operator's margins, and no volume's safety hangs on them.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/image_store.h"

namespace lunkeeper {

struct PoolLimits {
  double overcommit = 0;      // the pool's sizes that may be promised; 0: any number
  int keep_free_percent = 0;  // of the pool, that new volumes, growth and snapshots leave free
};

struct PoolUse {
  uint64_t total_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t promised_bytes = 0;
};

class PoolRoom {
 public:
  // `images` and `catalogue` outlive it.
  PoolRoom(const PoolLimits& limits, const ImageStore& images, Catalogue& catalogue)
      : limits_(limits), images_(images), catalogue_(catalogue) {}

  // Before something is made or grows that promises `promised` bytes more and takes `taken` of them at once.
  // `what` names it in an error. RESOURCE_EXHAUSTED: there is no room for that.
  absl::Status CheckRoom(const std::string& what, uint64_t promised, uint64_t taken) const;
  absl::StatusOr<PoolUse> MeasureUse() const;
  // The pool's, with what CheckRoom would let a new thick volume have now.
  absl::StatusOr<PoolCapacity> MeasureCapacity() const;

 private:
  uint64_t KeptFree(const PoolCapacity& capacity) const;
  absl::Status CheckFree(const std::string& what, uint64_t taken, const PoolCapacity& capacity) const;

  const PoolLimits limits_;
  const ImageStore& images_;
  Catalogue& catalogue_;
};

}  // namespace lunkeeper
