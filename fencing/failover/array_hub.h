#pragma once
// The arrays there are, each with a thread that looks at it every half second and a few that carry out what
// is asked of it, so that one that hangs holds up no other. Post and Refresh: one thread. `seen` is called on
// the arrays' threads. Failure: a look that fails, or none for a while, is an array that is lost. The
// destructor waits for the calls in progress, which end by the array's own limits of time.

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <map>
#include <memory>
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
  using Seen = std::function<void(ArrayPoll)>;
  ArrayHub(lunkeeper::Arrays& arrays, Seen seen) : arrays_(arrays), seen_(std::move(seen)) {}
  ~ArrayHub();

  // Takes in which arrays there are now. Those that are no longer among them, each once.
  std::vector<ArrayId> Refresh();
  bool Has(const ArrayId& id) const;
  // Those of which the last look failed or hangs.
  std::vector<ArrayId> Lost(Instant now) const;
  // Does `work` on the array's own threads; without such an array it is called at once, with null.
  void Post(const ArrayId& id, std::function<void(FenceControl*)> work);

 private:
  static constexpr size_t kWorkers = 8;
  // An std::optional does not fit in an atomic without a lock. The monotonic clock is past its start.
  static constexpr Instant kNever = Instant();
  struct Entry {
    ArrayId id;
    std::atomic<Instant> answered_at = kNever, failed_at = kNever;
    absl::Mutex mutex;
    std::shared_ptr<Array> array ABSL_GUARDED_BY(mutex);  // null: it is configured no more
    boost::asio::thread_pool workers{kWorkers};
    std::string error;               // of the thread that looks
    std::unique_ptr<Periodic> look;  // the last member
    std::shared_ptr<Array> Get();
    void Set(std::shared_ptr<Array> now);
  };
  void LookAt(Entry& entry);

  lunkeeper::Arrays& arrays_;
  const Seen seen_;
  std::map<ArrayId, std::unique_ptr<Entry>> entries_;
};

}  // namespace lunkeeper::fencing
