// Children whose thread goes its rounds, or stays in one.

#include "devices/datapath/hang_watch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <thread>

namespace lunkeeper {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongest(50);

milliseconds ProcessorTime() {
  timespec used = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return milliseconds(used.tv_sec * 1000 + used.tv_nsec / 1'000'000);
}

// What a child whose watched thread did this died of; 0: nothing.
int SignalOf(const std::function<void(std::atomic<uint64_t>& rounds)>& work) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (int number = 1; number < SIGRTMIN; ++number) ::signal(number, SIG_DFL);  // not the test framework's
    std::thread([&] {
      std::atomic<uint64_t> rounds{0};
      const HangWatch watch(rounds, kLongest);
      work(rounds);
    }).join();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST_CASE("a thread that stays in one round and computes ends its process as a crash does") {
  const auto stay = [](std::atomic<uint64_t>& rounds) {
    while (rounds.load() == 0) {
    }
  };
  CHECK(SignalOf(stay) == SIGABRT);
}

TEST_CASE("a thread that works hard, round after round, is no hang") {
  CHECK(SignalOf([](std::atomic<uint64_t>& rounds) {
          while (ProcessorTime() < kLongest * 6) ++rounds;
        }) == 0);
}

TEST_CASE("nor is one that waits in one round for long") {
  CHECK(SignalOf([](std::atomic<uint64_t>&) { std::this_thread::sleep_for(kLongest * 6); }) == 0);
}

}  // namespace
}  // namespace lunkeeper
