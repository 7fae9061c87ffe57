#include "plugin/ask_each.h"

#include <catch2/catch.hpp>

#include "absl/synchronization/mutex.h"

namespace lunkeeper {

TEST_CASE("arrays are asked at the same time, and answer in their order") {
  const std::vector<NamedArray> arrays = {{.name = "a", .array = nullptr}, {.name = "b", .array = nullptr}};
  absl::Mutex mutex;
  size_t asked = 0;
  // Each waits until the other was asked too.
  const auto answers = AskEach(arrays, [&](const NamedArray& array) {
    const absl::MutexLock lock(&mutex);
    ++asked;
    const auto both = [&] { return asked == arrays.size(); };
    return mutex.AwaitWithTimeout(absl::Condition(&both), absl::Seconds(30)) ? array.name : "alone";
  });
  CHECK(answers == std::vector<std::string>{"a", "b"});
  CHECK(AskEach({}, [](const NamedArray&) { return 1; }).empty());
}

}  // namespace lunkeeper
