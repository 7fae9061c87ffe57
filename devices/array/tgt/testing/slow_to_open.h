#pragma once
// Files of images that tgtd cannot open for a while. The kernel makes it wait: they have a lease of the file.

#include <fcntl.h>
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace lunkeeper::testing {

// An image that nobody can open while it lives, for less than a minute: who tries waits.
class Unopenable {
 public:
  explicit Unopenable(const std::string& path) : fd_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    ::signal(SIGIO, SIG_IGN);  // which says that somebody tries
    REQUIRE(::fcntl(fd_.get(), F_SETLEASE, F_WRLCK) == 0);
  }

 private:
  const UniqueFd fd_;
};

// Images each of which takes a while to open. The kernel tells by its lease of the file that somebody tries.
class SlowToOpen {
 public:
  explicit SlowToOpen(const std::vector<std::string>& paths) {
    ::signal(SIGIO, SIG_IGN);
    for (const std::string& path : paths) {
      files_.emplace_back(::open(path.c_str(), O_RDWR | O_CLOEXEC));
      REQUIRE(::fcntl(files_.back().get(), F_SETLEASE, F_WRLCK) == 0);
    }
    thread_ = std::jthread([this] { LetOpen(); });
  }
  ~SlowToOpen() { over_.Notify(); }

 private:
  void LetOpen() {
    while (!files_.empty() && !over_.WaitForNotificationWithTimeout(absl::Milliseconds(10))) {
      const auto tried = std::ranges::find_if(
          files_, [](const UniqueFd& file) { return ::fcntl(file.get(), F_GETLEASE) != F_WRLCK; });
      if (tried == files_.end()) continue;
      over_.WaitForNotificationWithTimeout(absl::Seconds(4));
      files_.erase(tried);
    }
  }
  std::vector<UniqueFd> files_;
  absl::Notification over_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace lunkeeper::testing
