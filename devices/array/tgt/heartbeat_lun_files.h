#pragma once
// The files of heartbeat LUNs, one each, in a directory of this host, whatever store the volumes are in: what
// stands in them is worth nothing after a second, and tgtd and this program share them by the page cache.
// Thread-safe for different files. Failure: as pool_file.h.

#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "devices/types.h"

namespace lunkeeper {

class HeartbeatLunFiles {
 public:
  // `directory` is there.
  explicit HeartbeatLunFiles(std::string directory) : directory_(std::move(directory)) {}

  std::string PathOf(Generation generation) const;
  // Made if need be. Its space is allocated, so that a full disk keeps no heartbeat out.
  absl::StatusOr<UniqueFd> OpenLunFile(Generation generation) const;
  // OK when there is none.
  absl::Status RemoveLunFile(Generation generation) const;
  // Of LUNs that another host forgot while it had the array. What cannot be removed stays.
  void RemoveOthers(const std::set<Generation>& known) const;

 private:
  const std::string directory_;
};

}  // namespace lunkeeper
