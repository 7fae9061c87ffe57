#include "fencing/failover/array_hub.h"

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
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
  // The first poll of that array; none: nothing came of it.
  std::optional<Instant> AskedOf(const std::string& array) {
    absl::MutexLock lock(&mutex_);
    for (const ArrayPoll& poll : polls_)
      if (poll.view.array.value() == array) return poll.view.asked;
    return std::nullopt;
  }
  void TakeAll() {
    absl::MutexLock lock(&mutex_);
    polls_.clear();
  }

 private:
  absl::Mutex mutex_;
  std::vector<ArrayPoll> polls_ ABSL_GUARDED_BY(mutex_);
};

class SeveralArrays final : public lunkeeper::Arrays {
 public:
  std::vector<NamedArray> ListArrays() override {
    std::vector<NamedArray> arrays;
    for (const char* name : {"a1", "a2", "a3"}) arrays.push_back({name, array_});
    return arrays;
  }

 private:
  const std::shared_ptr<FakeArray> array_ = std::make_shared<FakeArray>();
};

}  // namespace

// All at once they would take the memory of as many polls, and keep the loop from its ticks.
TEST_CASE("the first polls of several arrays begin one after the other") {
  SeveralArrays arrays;
  Waiting waiting;
  ArrayHub hub(
      arrays, [&](ArrayPoll poll) { waiting.Add(std::move(poll)); }, RealExecutor());
  const Instant start = NowOn(RealExecutor());
  hub.RefreshArrays();
  REQUIRE(testing::Eventually([&] { return waiting.AskedOf("a3").has_value(); }));
  CHECK(*waiting.AskedOf("a3") - start >= 100_ms);
  REQUIRE(testing::Eventually([&] { return waiting.AskedOf("a2").has_value(); }));
  CHECK(*waiting.AskedOf("a2") - start >= 50_ms);
}

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
