#pragma once
// Whether this node's network path to an array's portal works. It opens a TCP connection each 100 ms; any
// answer, also a refusal, shows that packets reach the array and come back. After eight unanswered attempts
// in a row, about one second, the path counts as lost. Thread-safe; nothing fails. A portal that is no
// numeric address is never lost.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/executor.h"
#include "base/periodic.h"
#include "base/tcp_prober.h"

namespace lunkeeper {

class PathWatch {
 public:
  explicit PathWatch(Executor& executor = RealExecutor(),
                     std::function<std::unique_ptr<Prober>()> make_prober = MakeProber)
      : executor_(executor), make_prober_(std::move(make_prober)) {}
  // From now on these portals are watched, and no others. With none the probing thread ends. One thread calls
  // this.
  void WatchPortals(const std::set<std::string>& portals) ABSL_LOCKS_EXCLUDED(mutex_);
  // False for a portal that is not watched.
  bool IsLost(const std::string& portal) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void ProbePortals() ABSL_LOCKS_EXCLUDED(mutex_);

  Executor& executor_;
  const std::function<std::unique_ptr<Prober>()> make_prober_;
  mutable absl::Mutex mutex_;
  std::map<std::string, int> unanswered_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Prober> prober_;  // used by the thread of `probes_`, so it must outlive that
  std::optional<Periodic> probes_;
};

}  // namespace lunkeeper
