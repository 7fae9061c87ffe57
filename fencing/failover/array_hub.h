#pragma once
// Polls every configured array twice a second and runs commands against it. Each array has its own polling
// thread and eight workers, so a hung array delays no other. LostArrays reports arrays
// whose poll fails, and arrays that have not answered for 5 s since they were configured. A slow array delays
// its own polls; the log warns of it once a minute. What late answers are worth is the core's to say. With
// 10,000 nodes each poll has a megabyte, and a busy machine would fill its memory with them: so polls of
// several arrays begin at different times, and an array of which two polls wait to be taken in is not polled
// meanwhile.
//
// One thread calls the methods. `polled` is called on the arrays' threads. The destructor waits for the calls
// in progress, which end by the array's own time limits.

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/periodic.h"
#include "devices/array/arrays.h"
#include "fencing/core/event.h"
#include "fencing/failover/array_actions.h"
#include "fencing/failover/clock.h"

namespace lunkeeper::fencing {

class ArrayHub {
 public:
  using Polled = std::function<void(ArrayPoll)>;
  ArrayHub(lunkeeper::Arrays& arrays, Polled polled, Executor& executor)
      : arrays_(arrays), polled_(std::move(polled)), executor_(executor) {}
  ~ArrayHub();

  // Reads which arrays are configured now. Returns the arrays that were removed since the last call.
  std::vector<ArrayId> RefreshArrays();
  bool HasArray(const ArrayId& id) const;
  // All that are configured, whether they answer or not.
  std::vector<ArrayId> ListArrays() const;
  // The arrays whose last poll failed, and arrays that never answered.
  std::vector<ArrayId> LostArrays(Instant now) const;
  // Runs `work` on one of the array's workers. For an unknown array it is called at once, with null.
  void PostWork(const ArrayId& id, std::function<void(Array*)> work);

 private:
  static constexpr size_t kWorkers = 8;
  static constexpr int64_t kMostWaiting = 2;
  // An std::optional does not fit in an atomic without a lock. The monotonic clock is past its start.
  static constexpr Instant kNever = Instant();
  struct Entry {
    Entry(ArrayId array_id, Executor& executor)
        : id(std::move(array_id)), made_at(NowOn(executor)), workers(executor.MakeWorkers(kWorkers)) {}
    const ArrayId id;
    const Instant made_at;
    std::atomic<Instant> answered_at = kNever, failed_at = kNever;
    absl::Mutex mutex;
    std::shared_ptr<Array> array ABSL_GUARDED_BY(mutex);  // null: it is configured no more
    const std::unique_ptr<Workers> workers;
    const ArrayPoll::Ticket ticket = std::make_shared<const bool>();  // each poll has a copy of it
    std::string error;                                                // used by the polling thread only
    std::optional<Instant> reported_slow_at;                          // and so is this
    std::unique_ptr<Periodic> polling;  // last: its thread uses the other members
    std::shared_ptr<Array> GetArray();
    void SetArray(std::shared_ptr<Array> now);
  };
  void PollEntry(Entry& entry);
  void ReportIfSlow(Entry& entry, Instant asked) const;

  lunkeeper::Arrays& arrays_;
  const Polled polled_;
  Executor& executor_;
  std::map<ArrayId, std::unique_ptr<Entry>> entries_;
};

}  // namespace lunkeeper::fencing
