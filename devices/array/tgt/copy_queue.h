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
#include "absl/time/time.h"
#include "base/steady_mutex.h"

namespace lunkeeper {

class CopyQueue {
 public:
  // Told how many bytes are copied; answers false when the copy must give up.
  using Progress = std::function<bool(uint64_t done_bytes)>;
  // Does the copy and records its end; calls `progress` now and then.
  using Work = std::function<absl::Status(const Progress& progress)>;

  CopyQueue();
  ~CopyQueue();
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;

  // Begins the copy `id` of so many bytes, unless it is under way.
  void BeginCopy(const std::string& id, uint64_t total_bytes, Work work) ABSL_LOCKS_EXCLUDED(mu_);
  // The end of the copy `id`, or ABORTED with how far it is, or how many it waits for; OK when there is none.
  absl::Status WaitForCopy(const std::string& id, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Job {
    Work work;
    uint64_t total_bytes = 0;
    uint64_t done_bytes = 0;
    bool ended = false;
    int waiting = 0;
    absl::Status result = absl::OkStatus();
  };
  void RunCopies();
  std::string Describe(const std::string& id, const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool NoteProgress(const std::string& id, uint64_t done_bytes) ABSL_LOCKS_EXCLUDED(mu_);

  SteadyMutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::string> queue_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Job> jobs_ ABSL_GUARDED_BY(mu_);
  std::thread worker_;
};

}  // namespace lunkeeper
