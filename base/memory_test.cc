#include "base/memory.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"

namespace lunkeeper {
namespace {

size_t ResidentPages() {
  size_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident;
}

int zeroed[1024];
std::string initialised = "as it was";

}  // namespace

TEST_CASE("pages of program files are let go, and the program and its data go on") {
  zeroed[512] = 7;
  const size_t before = ResidentPages();
  REQUIRE(ReleaseProgramPages() > 0);
  CHECK(ResidentPages() < before);
  CHECK(zeroed[512] == 7);
  CHECK(initialised == "as it was");
  CHECK(std::to_string(1.5) == "1.500000");
}

// A sanitizer brings a heap of its own, which keeps what is freed.
#if !defined(LUNKEEPER_SANITIZED)
TEST_CASE("memory is let go when somebody asks, not only when the time has come") {
  MemoryTidier tidier;
  const absl::Time deadline = absl::Now() + absl::Seconds(4);  // before the next turn without a call
  absl::SleepFor(absl::Milliseconds(100));                     // the first turn
  std::vector<std::unique_ptr<char[]>> blocks;
  for (int i = 0; i < 4096; ++i) blocks.push_back(std::make_unique<char[]>(4096));
  const auto last = std::make_unique<char[]>(4096);  // keeps the heap's end where it is
  const size_t busy = ResidentPages();
  blocks.clear();
  tidier.ReleaseSoon();
  while (ResidentPages() + 3000 > busy && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(10));
  CHECK(ResidentPages() + 3000 <= busy);
}
#endif

}  // namespace lunkeeper
