#pragma once
// The controller replicas that have asked this one something lately (Hears), by the address at which they
// serve nodes. Answers to heartbeats name them, so a node learns of a new replica before its name server
// does. One that has not asked for 15 s is forgotten. Thread-safe; never blocks; nothing fails: what is no
// address is left out.

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lunkeeper {

class KnownReplicas {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // `peer` is the caller as gRPC names it (ipv4:10.0.0.1:51234); `port` is where it serves; 0: it is older
  // and does not say.
  void NoteReplica(const std::string& peer, uint32_t port, Time now = std::chrono::steady_clock::now());
  // host:port of each, with a number for the host.
  std::vector<std::string> ListReplicas(Time now = std::chrono::steady_clock::now());

 private:
  absl::Mutex mutex_;
  std::map<std::string, Time> asked_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
