#include "fencing/failover/array_hub.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/testing/test_host.h"
#include "devices/array/testing/fake_array.h"

namespace lunkeeper::fencing {
namespace {

// Polls that came, and have not been taken in.
class Waiting {
 public:
  void Add(ArrayPoll poll) {
    absl::MutexLock lock(&mutex_);
    polls_.push_back(std::move(poll));
  }
  size_t Count() {
    absl::MutexLock lock(&mutex_);
    return polls_.size();
  }
  void TakeAll() {
    absl::MutexLock lock(&mutex_);
    polls_.clear();
  }

 private:
  absl::Mutex mutex_;
  std::vector<ArrayPoll> polls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

TEST_CASE("an array of which two polls wait to be taken in is not polled until they are") {
  const auto arrays = MakeOneArray("fake", std::make_shared<FakeArray>());
  Waiting waiting;
  ArrayHub hub(
      *arrays, [&](ArrayPoll poll) { waiting.Add(std::move(poll)); }, RealExecutor());
  hub.RefreshArrays();
  REQUIRE(testing::Eventually([&] { return waiting.Count() == 2; }));
  absl::SleepFor(absl::Milliseconds(1300));  // in which two more would come
  CHECK(waiting.Count() == 2);
  waiting.TakeAll();
  CHECK(testing::Eventually([&] { return waiting.Count() == 2; }));
}

}  // namespace lunkeeper::fencing
