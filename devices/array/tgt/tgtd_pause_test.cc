// A process of several threads stands in for tgtd.
#include "devices/array/tgt/tgtd_pause.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/testing/test_host.h"

namespace lunkeeper::testing {
namespace {

constexpr size_t kThreads = 4;

// Each thread counts, as fast as it can.
struct Counting {
  Counting() {
    counts = static_cast<std::atomic<uint64_t>*>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    process = ::fork();
    if (process == 0) {
      for (size_t i = 0; i < kThreads; ++i) std::thread([this, i] { Count(i); }).detach();
      while (true) ::pause();
    }
    REQUIRE(Eventually([&] { return Runs(); }, absl::Minutes(1)));
  }
  ~Counting() {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
    ::munmap(counts, 4096);
  }
  [[noreturn]] void Count(size_t thread) const {
    while (true) {
      ++counts[thread];
      if (counts[thread] % 64 == 0) ::sched_yield();
    }
  }
  uint64_t Sum() const {
    uint64_t sum = 0;
    for (size_t i = 0; i < kThreads; ++i) sum += counts[i];
    return sum;
  }
  // Whether it counts within a moment.
  bool Runs() const {
    const uint64_t before = Sum();
    absl::SleepFor(absl::Milliseconds(20));
    return Sum() != before;
  }
  absl::StatusOr<std::unique_ptr<TgtdPause>> Pause() const {
    return TgtdPause::HoldTgtd(process, UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, process, 0))));
  }

  std::atomic<uint64_t>* counts;
  pid_t process;
};

TEST_CASE_METHOD(Counting, "no thread does anything in a pause, and all go on after it") {
  for (int round = 0; round < 20; ++round) {
    auto pause = Pause();
    REQUIRE(pause.status() == absl::OkStatus());
    const uint64_t at_begin = Sum();
    absl::SleepFor(absl::Milliseconds(10));
    const uint64_t at_end = Sum();
    // A machine that is slower than the limit gets no pause of that length.
    if ((*pause)->CheckHeld().ok()) CHECK(at_end == at_begin);
    (*pause)->LetGo();
    CHECK(Eventually([&] { return Runs(); }, absl::Minutes(1)));
  }
}

TEST_CASE_METHOD(Counting, "a pause that nobody ends is over within its limit, and says so") {
  const auto pause = Pause();
  REQUIRE(pause.status() == absl::OkStatus());
  CHECK(Eventually([&] { return Runs(); }, absl::Minutes(1)));
  CHECK(TgtdPause::Clock::now() >= (*pause)->end());
  CHECK(absl::IsUnavailable((*pause)->CheckHeld()));
}

TEST_CASE_METHOD(Counting, "what paused it is killed: it goes on by itself") {
  const pid_t agent = ::fork();
  if (agent == 0) {
    const auto pause = Pause();
    ::kill(::getpid(), pause.ok() ? SIGKILL : SIGTERM);
  }
  int status = 0;
  REQUIRE(::waitpid(agent, &status, 0) == agent);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
  CHECK(Eventually([&] { return Runs(); }, absl::Minutes(1)));
}

TEST_CASE_METHOD(Counting, "a pause that somebody else ends, or whose process dies, was none") {
  auto pause = Pause();
  REQUIRE(pause.status() == absl::OkStatus());
  const int signal = GENERATE(SIGCONT, SIGKILL);
  ::kill(process, signal);
  CHECK(Eventually([&] { return absl::IsUnavailable((*pause)->CheckHeld()); }, absl::Minutes(1)));
  (*pause)->LetGo();
  CHECK(Runs() == (signal == SIGCONT));
  CHECK(absl::IsUnavailable(Pause().status()) == (signal == SIGKILL));
}

}  // namespace
}  // namespace lunkeeper::testing
