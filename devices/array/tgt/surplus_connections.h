#pragma once
// Bounds the TCP connections to a tgtd's portals, which tgtd itself accepts without a limit, and keeps for as
// long as the other end likes. For each command of a volume tgtd goes through the list of all of them; when
// its descriptors run out it takes no login any more, and no call of ours: no fence ends then.
//
// By address, because a stranger has one address and many ports. An address in good order has a session for
// each target at most, and for a moment a second one where it has just lost its path. Of an address with
// more, the connections end that were answered for the shortest time (connection_history.h), and least: tgtd
// answers little to who has no secret, while what it receives is what they like to send. A stranger can have
// a node's address.
//
// It asks the kernel and not tgtd, so it works when tgtd answers nobody. One thread uses it; others may ask
// for what it counts.

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "devices/array/tgt/connection_history.h"

namespace lunkeeper {

// Beside two for each file that tgtd has open: each volume's image is one.
inline constexpr size_t kSpareConnections = 512;

class SurplusConnections {
 public:
  // address:port each.
  explicit SurplusConnections(const std::vector<std::string>& portals);

  // Ends what is too much of the connections to the portals of this process, and logs that. To be called each
  // second: what they have been answered meanwhile decides. The handle is its pidfd. Where this program may
  // not reach into that process, none ends, which is logged once: a container needs SYS_PTRACE for it.
  void EndSurplus(pid_t tgtd, const UniqueFd& handle);
  uint64_t ended() const { return ended_; }

 private:
  absl::StatusOr<size_t> TryToEnd(pid_t tgtd, const UniqueFd& handle);

  const std::set<uint16_t> ports_;
  ConnectionHistory history_;
  bool cannot_ = false;  // as was logged
  std::atomic<uint64_t> ended_ = 0;
};

}  // namespace lunkeeper
