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
#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lunkeeper {

class StuckConnections {
 public:
  // Notes how far the peers of `tgtd` have come. At most twice a second: it takes 3 µs a socket.
  void NoteProgress(pid_t tgtd) ABSL_LOCKS_EXCLUDED(mu_);
  // Shuts down those with one of these peers, as `host` without port, that take nothing more and whose peer
  // has acknowledged no byte for a second; with `slow` all that take nothing more at this moment, as a peer
  // could read a little for ever. Such a node's connection to another target is made anew by the node.
  void ShutDown(pid_t tgtd, const std::set<std::string>& peers, bool slow) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;
  struct Progress {
    uint64_t acknowledged = 0;  // bytes
    SteadyTime since;           // which it has been so
  };

  void GoThrough(pid_t tgtd, const std::set<std::string>& peers, bool slow)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the peer of this socket has taken something since the last look.
  bool IsStill(uint64_t inode, int socket, SteadyTime now, std::map<uint64_t, Progress>* seen)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  SteadyTime looked_at_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, Progress> progress_ ABSL_GUARDED_BY(mu_);  // by the socket's inode
  bool refused_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lunkeeper
