#pragma once
// Whom Ceph refuses, for a question that is asked often and whose answer changes seldom. The list may be
// long, and each change of it is a new map of the cluster: as long as the map is the same, it is not read.
//
//   ListNew: all --same map--> nothing --another map--> all ...
//    |                                                   ^
//    +--LookAgain----------------------------------------+
//
// Thread-safe. The pool outlives it. Failure as in ceph_pool.h; what has failed is asked again.

#include <cstdint>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/tgt/ceph_pool.h"

namespace lunkeeper {

class BlocklistWatch {
 public:
  explicit BlocklistWatch(const CephPool& pool) : pool_(pool) {}
  // All clients that the cluster refuses, by their addresses; none: also where it was asked in this map.
  absl::StatusOr<std::set<std::string>> ListNew() ABSL_LOCKS_EXCLUDED(mu_);
  // The next call reads the list: what it was read for has changed, or is not done.
  void LookAgain() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const CephPool& pool_;
  absl::Mutex mu_;
  uint64_t map_ ABSL_GUARDED_BY(mu_) = 0;  // in which it was read
};

}  // namespace lunkeeper
