#include "plugin/stop_signal.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

namespace lunkeeper {
namespace {

int event_fd = -1;

void OnSignal(int) {
  const int saved = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_fd, &one, sizeof(one));
  errno = saved;
}

}  // namespace

StopSignal::StopSignal() {
  event_fd = ::eventfd(0, EFD_CLOEXEC);
  if (event_fd < 0) std::abort();  // no descriptors at the start of main()
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
}

void StopSignal::Wait() {
  uint64_t count = 0;
  while (::read(event_fd, &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}

}  // namespace lunkeeper
