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
  // `turned`: a watched portal is lost, or answers again. Called on the prober's thread, with no lock held;
  // not any more once WatchPortals({}) has returned. It must not block.
  explicit PathWatch(
      Executor& executor = RealExecutor(), std::function<std::unique_ptr<Prober>()> make_prober = MakeProber,
      std::function<void()> turned = [] {})
      : executor_(executor), make_prober_(std::move(make_prober)), turned_(std::move(turned)) {}
  // From now on these portals are watched, and no others. With none the probing thread ends. One thread calls
  // this.
  void WatchPortals(const std::set<std::string>& portals) ABSL_LOCKS_EXCLUDED(mutex_);
  // False for a portal that is not watched.
  bool IsLost(const std::string& portal) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void ProbePortals() ABSL_LOCKS_EXCLUDED(mutex_);
  // True: the portal is lost now and was not, or the other way round.
  bool NoteResult(const std::string& portal, bool answered) ABSL_LOCKS_EXCLUDED(mutex_);

  Executor& executor_;
  const std::function<std::unique_ptr<Prober>()> make_prober_;
  const std::function<void()> turned_;
  mutable absl::Mutex mutex_;
  std::map<std::string, int> unanswered_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Prober> prober_;  // used by the thread of `probes_`, so it must outlive that
  std::optional<Periodic> probes_;
};

}  // namespace lunkeeper
