#pragma once
// Long copies, one after another on one thread, for pools that cannot reflink.
// Thread-safe. The destructor makes the running copy give up and joins the thread; copies not begun are
// forgotten.

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lunkeeper {

class Copies {
 public:
  // Does the copy and records its end; calls `progress` now and then, which answers false when it must give
  // up.
  using Work = std::function<absl::Status(const std::function<bool(uint64_t)>& progress)>;

  Copies();
  ~Copies();
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // Begins the copy `id`, unless it is under way.
  void Begin(const std::string& id, Work work) ABSL_LOCKS_EXCLUDED(mu_);
  // The end of the copy `id`, or ABORTED with how far it is; OK when there is none.
  absl::Status Wait(const std::string& id, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Job {
    Work work;
    uint64_t done_bytes = 0;
    bool ended = false;
    int waiting = 0;
    absl::Status result = absl::OkStatus();
  };
  void Run();
  bool Progress(const std::string& id, uint64_t done_bytes) ABSL_LOCKS_EXCLUDED(mu_);

  absl::Mutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::string> queue_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Job> jobs_ ABSL_GUARDED_BY(mu_);
  std::thread worker_;
};

}  // namespace lunkeeper
