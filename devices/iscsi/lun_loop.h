#pragma once
// Drives Luns on the calling thread, for tests and benchmarks: the smallest loop that keeps lun.h's contract.

#include <sys/epoll.h>

#include <algorithm>
#include <vector>

#include "base/unique_fd.h"
#include "devices/iscsi/lun.h"

namespace lunkeeper {

class LunLoop {
 public:
  LunLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}
  void Add(Lun* lun) { luns_.push_back({lun, {-1, 0}}); }
  void Remove(Lun* lun) {
    std::erase_if(luns_, [lun](const Driven& driven) { return driven.lun == lun; });
  }

  // Until `done` says so; false when that takes longer than `limit`. `spin`: never sleeps.
  template <class Done>
  bool RunUntil(Done done, std::chrono::milliseconds limit, bool spin = false) {
    const auto end = Lun::Clock::now() + limit;
    while (!done()) {
      if (Lun::Clock::now() >= end) return false;
      RunOnce(end, spin);
    }
    return true;
  }

 private:
  struct Driven {
    Lun* lun;
    Lun::Interest armed;
  };

  void RunOnce(Lun::Clock::time_point end, bool spin) {
    auto next = end;
    for (Driven& driven : luns_) {
      driven.lun->SendQueued();
      ArmSocket(driven);
      next = std::min(next, driven.lun->NextDeadline());
    }
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(std::max(next - Lun::Clock::now(), {}));
    epoll_event events[16];
    const int count = ::epoll_wait(epoll_.get(), events, 16, spin ? 0 : static_cast<int>(wait.count()));
    for (int i = 0; i < count; ++i) static_cast<Lun*>(events[i].data.ptr)->OnReady();
    const auto now = Lun::Clock::now();
    for (Driven& driven : luns_) {
      if (now >= driven.lun->NextDeadline()) driven.lun->OnTimer(now);
      ArmSocket(driven);
    }
  }

  // A closed descriptor has left the epoll set by itself.
  void ArmSocket(Driven& driven) {
    const Lun::Interest wanted = driven.lun->interest();
    if (wanted.fd == driven.armed.fd && wanted.events == driven.armed.events) return;
    epoll_event event{.events = wanted.events, .data = {.ptr = driven.lun}};
    if (wanted.fd >= 0) {
      const int operation = driven.armed.fd == wanted.fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
      ::epoll_ctl(epoll_.get(), operation, wanted.fd, &event);
    }
    driven.armed = wanted;
  }

  UniqueFd epoll_;
  std::vector<Driven> luns_;
};

}  // namespace lunkeeper
