#pragma once
// Ends connections that tgtd cannot end. tgtd closes one that was cut once its socket has something to say.
// That of a node which died, froze or was cut off while it read says nothing: answers fill its send buffer,
// and their commands count as running until TCP gives up after a quarter of an hour, or for ever where a
// kernel answers yet (docs/tgt.md). A shutdown of the socket wakes tgtd, which then drops the answers.
//
// A command that is still at the disk is waited for as ever. Thread-safe. Nothing fails: a tgtd that cannot
// be looked into from here is left alone, which is said once in the log.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/unique_fd.h"
#include "devices/array/tgt/tgt_client.h"

namespace lunkeeper {

class StuckConnections {
 public:
  using Portals = std::function<std::vector<std::string>()>;  // address:port each

  StuckConnections(const TgtClient* tgt, Portals portals) : tgt_(tgt), portals_(std::move(portals)) {}

  // These are to end, and tgtd lists them still. To be called until it does not: twice a second it goes
  // through tgtd's sockets, which takes 3 µs for each, and shuts down those with the address of one of these
  // that take nothing more, and of which the peer has acknowledged nothing for a second, or in 30 seconds
  // next to nothing. tgtd tells only the address: a stuck connection from there to another target ends, too,
  // and its node logs in again.
  void EndStuck(const std::vector<TgtConnection>& listed) ABSL_LOCKS_EXCLUDED(mu_);
  // This tgtd answers nobody: it may be that it waits for a peer that takes no answer, and with it everybody
  // else (docs/tgt.md). Of whichever peers have a connection that takes nothing more, as above, all end. To
  // be called until it answers.
  void EndAllStuck(pid_t tgtd) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;
  // Of a socket that has taken nothing more at each look.
  struct Progress {
    uint64_t acknowledged = 0;  // bytes
    SteadyTime since;           // which it has been so many
    uint64_t counted_from = 0;  // bytes that were acknowledged
    SteadyTime counting_since;  // this time
  };

  // False: it is too soon after the last look.
  bool BeginLook() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null: of all peers.
  void GoThrough(pid_t tgtd, const std::set<std::string>* peers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status TryToGoThrough(pid_t tgtd, const std::set<std::string>* peers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsStuck(const UniqueFd& socket, std::map<uint64_t, Progress>& seen) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static bool TakesNothing(uint64_t acknowledged, SteadyTime now, Progress& progress);

  const TgtClient* const tgt_;
  const Portals portals_;
  absl::Mutex mu_;
  std::set<std::string> peers_ ABSL_GUARDED_BY(mu_);  // of what was listed since the last look
  SteadyTime looked_at_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, Progress> progress_ ABSL_GUARDED_BY(mu_);  // by the socket's cookie
  bool refused_ ABSL_GUARDED_BY(mu_) = false;                   // as was logged
};

}  // namespace lunkeeper
