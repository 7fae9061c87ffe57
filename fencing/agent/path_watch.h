#pragma once
// Whether the way to an array's portal is open, as this node sees it: a TCP connect each 100 ms, which is
// answered, if only by a refusal, as long as the way is. Eight in a row without an answer, a second or so,
// is a way that is lost; a network that loses one packet in five does not look so. Thread-safe, and nothing
// fails: a portal that is no number is never lost.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/periodic.h"
#include "base/tcp_prober.h"

namespace lunkeeper {

class PathWatch {
 public:
  // From now on these are watched, and no others. None: nothing is done at all.
  void Watch(const std::set<std::string>& portals) ABSL_LOCKS_EXCLUDED(mutex_);
  // False for one that is not watched.
  bool IsLost(const std::string& portal) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Knock() ABSL_LOCKS_EXCLUDED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<std::string, int> unanswered_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<fencing::Prober> prober_;  // of the thread that calls Watch; ended after the knocks
  std::optional<Periodic> knocks_;
};

}  // namespace lunkeeper
