#pragma once
// Runs a test on a thread of its own in a new network namespace, in which even loopback is down. Threads and
// processes that the test starts are in it, too. Needs root; throws std::system_error without it.

#include <sched.h>

#include <functional>
#include <future>
#include <system_error>

namespace lunkeeper::testing {

inline void InEmptyNetwork(const std::function<void()>& test) {
  std::async(std::launch::async, [&] {
    if (::unshare(CLONE_NEWNET) != 0)
      throw std::system_error(errno, std::generic_category(), "unshare a network namespace");
    test();
  }).get();
}

}  // namespace lunkeeper::testing
