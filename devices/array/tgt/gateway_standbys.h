#pragma once
// Which gateways stand by for an array on Ceph: an object beside its record, lunkeeper.ARRAY.standbys, with a
// key for each. One that stands by counts its entry up about once a second, so an entry that stands still is
// of one that is gone. Nothing of a takeover rests on it: it tells an operator whether the array can be given
// away. So a Standby waits for no answer of the cluster, which may have lost just this object's disks.
// Thread-safe, but for one Standby.

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/array/tgt/ceph_pool.h"

namespace lunkeeper {

// The hosts of gateways that stand by: as soon as one is seen to count, or none after `look`. CANCELLED:
// `abandoned`, which may be empty, has said that nobody waits.
absl::StatusOr<std::set<std::string>> FindStandbys(const CephPool& pool, const std::string& array,
                                                   absl::Duration look,
                                                   const std::function<bool()>& abandoned = nullptr);

// One that stands by. The destructor has its entry removed; what fails here is logged, and harms nobody.
class Standby {
 public:
  // `pool` outlives it; `holder` and `host` as in the record.
  Standby(const CephPool& pool, const std::string& array, std::string holder, std::string host);
  ~Standby();
  Standby(const Standby&) = delete;
  Standby& operator=(const Standby&) = delete;

  void CountUp();

 private:
  void BeginWrite(const std::string& entry);
  // Whether no write is under way. The last one's error is logged, if that is news.
  bool IsWritten();

  const CephPool& pool_;
  const std::string object_, holder_, host_;
  uint64_t count_ = 0;
  CephLibrary::Handle write_ = nullptr;  // under way
  int failed_ = 0;                       // the last write's error
};

}  // namespace lunkeeper
