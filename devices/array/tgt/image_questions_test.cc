#include "devices/array/tgt/image_questions.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"

namespace lunkeeper {
namespace {

TEST_CASE("what does not answer holds up no other answer, and its own is taken when it comes") {
  absl::Notification answers;
  ImageQuestions<int> questions;
  questions.Ask("silent", [&] {
    answers.WaitForNotification();
    return 0;
  });
  for (int i = 1; i <= 200; ++i) questions.Ask(absl::StrCat(i), [i] { return i; });
  std::set<int> taken;
  while (const auto answered = questions.TakeAnswer(absl::Seconds(1))) taken.insert(*answered->answer);
  CHECK(taken.size() == 200);
  CHECK(!taken.contains(0));
  std::atomic<bool> twice = false;
  questions.Ask("silent", [&] {
    twice = true;
    return 1;
  });
  answers.Notify();
  const auto answered = questions.TakeAnswer(absl::Minutes(1));
  REQUIRE(answered);
  CHECK(answered->name == "silent");
  CHECK(*answered->answer == 0);
  CHECK(!twice);
  CHECK(!questions.TakeAnswer(absl::InfiniteDuration()));  // nothing is asked any more
}

// A thread's stack stays mapped until somebody joins it.
size_t CountMappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

TEST_CASE("as long as one image is silent, questions about others leave no threads behind") {
  absl::Notification answers;
  ImageQuestions<int> questions;
  questions.Ask("silent", [&] {
    answers.WaitForNotification();
    return 0;
  });
  const size_t before = CountMappings();
  for (int i = 0; i < 500; ++i) {
    questions.Ask("damaged", [] { return 1; });
    REQUIRE(questions.TakeAnswer(absl::Minutes(1)));
  }
  CHECK(CountMappings() < before + 100);
  answers.Notify();
}

}  // namespace
}  // namespace lunkeeper
