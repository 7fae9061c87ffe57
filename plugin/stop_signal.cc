// A signal handler may do almost nothing (signal-safety(7)); writing to an eventfd is allowed, and a thread
// can wait for that with poll(). The descriptor is never closed: a late signal must find it.
#include "plugin/stop_signal.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "base/steady_deadline.h"

namespace lunkeeper {
namespace {

int event_fd = -1;

void OnSignal(int) {
  // The interrupted code may be about to read its own errno.
  const int saved = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_fd, &one, sizeof(one));
  errno = saved;
}

}  // namespace

StopSignal::StopSignal() {
  event_fd = ::eventfd(0, EFD_CLOEXEC);
  // Only a process without free descriptors fails here, and at the start of main() it has opened none.
  if (event_fd < 0) std::abort();
  struct sigaction action {};
  action.sa_handler = OnSignal;
  // Calls that a signal interrupts go on, as code that ignores EINTR expects.
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
}

bool StopSignal::WaitFor(absl::Duration limit) {
  const SteadyDeadline deadline(limit);
  pollfd event{event_fd, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&event, 1, static_cast<int>(absl::ToInt64Milliseconds(deadline.left())));
    // EINTR is most likely the signal itself, whose write the next poll sees.
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

bool StopAsked() {
  pollfd event{event_fd, POLLIN, 0};  // poll ignores a descriptor of -1
  return ::poll(&event, 1, 0) > 0;
}

}  // namespace lunkeeper
