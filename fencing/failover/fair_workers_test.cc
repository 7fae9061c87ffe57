// Whose job comes next.

#include "fencing/failover/fair_workers.h"

#include <catch2/catch.hpp>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/testing/test_host.h"

namespace lunkeeper::fencing {

TEST_CASE("jobs of a group that has one at work wait behind those of groups that have none") {
  absl::Mutex mutex;
  std::vector<std::string> begun;
  absl::Notification over, slow_over;
  FairWorkers workers(RealExecutor(), 2);
  const auto post = [&](const std::string& group, const std::string& job) {
    workers.Post(group, [&, job] {
      {
        absl::MutexLock lock(&mutex);
        begun.push_back(job);
      }
      if (job == "held") over.WaitForNotification();
      if (job == "held long") slow_over.WaitForNotification();
    });
  };
  const auto has_begun = [&](size_t jobs) {
    return testing::Eventually([&] {
      absl::MutexLock lock(&mutex);
      return begun.size() == jobs;
    });
  };
  post("slow", "held long");
  post("first", "held");
  REQUIRE(has_begun(2));
  for (const char* job : {"s1", "s2"}) post("slow", job);
  post("z", "z1");
  post("b", "b1");
  post("z", "z2");
  over.Notify();
  REQUIRE(has_begun(7));
  slow_over.Notify();
  begun.erase(begun.begin(), begun.begin() + 2);
  CHECK(begun == std::vector<std::string>{"z1", "b1", "z2", "s1", "s2"});
}

}  // namespace lunkeeper::fencing
