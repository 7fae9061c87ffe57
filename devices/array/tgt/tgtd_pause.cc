// SIGSTOP, and the proof that it has worked; the signal itself returns while threads still run.
//
//   HoldTgtd   fork the guard -> SIGSTOP -> wait until every thread is held
//   LetGo      SIGCONT -> end the guard
//
// A thread is held when the kernel does not let it run tgtd's own code. That is so when it is stopped (T).
// It is also so for a thread in a system call that no signal interrupts (D), such as a write or a flush that
// waits for the disk, once another thread has been stopped: the first thread that takes the signal marks all
// of them, and a marked thread stops on its way back from the kernel (kernel/signal.c, do_signal_stop). Such
// a call may take long, and nobody waits for it here.
//
// The guard is a fork, which execs nothing: it must not fail once tgtd is stopped. It waits for the end of
// this program or for its time, then lets tgtd go on. Letting go what is not held does no harm. It survives
// what ends an agent and not its tgtd, such as systemd's KillMode=process. If both die at once, the next
// agent lets tgtd go before it takes it over (TgtDaemon).
#include "devices/array/tgt/tgtd_pause.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// The guard's clock begins with the guard, and this is for its start and its wake-up.
constexpr absl::Duration kGuardMargin = absl::Milliseconds(200);
constexpr absl::Duration kLookAgain = absl::Microseconds(200);
constexpr int kLooksAtOneOnItsWay = 200;

// Never returns. A fork of a process with threads: nothing here allocates or takes a lock, and system calls
// are made by number, past a sanitizer's functions, which would.
[[noreturn]] void GuardTgtd(int tgtd, int agent) {
  const uint64_t all_signals = ~uint64_t{0};
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all_signals, nullptr, sizeof(all_signals));
  ::syscall(SYS_setsid);
  ::syscall(SYS_prctl, PR_SET_NAME, "tgtd-pause", 0, 0, 0);
  // Locks of the pool and sockets of the agent must not live on here.
  const unsigned first = static_cast<unsigned>(std::min(tgtd, agent));
  const unsigned second = static_cast<unsigned>(std::max(tgtd, agent));
  if (first > 0) ::syscall(SYS_close_range, 0u, first - 1, 0u);
  if (first + 1 < second) ::syscall(SYS_close_range, first + 1, second - 1, 0u);
  ::syscall(SYS_close_range, second + 1, ~0u, 0u);
  const timespec most = absl::ToTimespec(kLongestPause);
  pollfd death = {.fd = agent, .events = POLLIN, .revents = 0};
  ::syscall(SYS_ppoll, &death, 1, &most, nullptr, 0);
  ::syscall(SYS_pidfd_send_signal, tgtd, SIGCONT, nullptr, 0);
  while (true) ::syscall(SYS_exit_group, 0);
}

// The letter of /proc/…/stat; 0: the thread is gone.
char StateOf(const std::string& thread) {
  const UniqueFd file(::open((thread + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[256];
  const ssize_t size = file ? ::read(file.get(), text, sizeof(text)) : -1;
  if (size <= 0) return 0;
  const std::string_view line(text, static_cast<size_t>(size));
  const size_t name_end = line.rfind(')');  // of the name, which may have any character
  return name_end == line.npos || name_end + 2 >= line.size() ? 0 : line[name_end + 2];
}

struct Threads {
  bool some_stopped = false;
  bool all_held = false;  // if the stop has begun
};

Threads LookAt(pid_t process) {
  Threads threads;
  bool others = false;
  std::error_code error;
  for (std::filesystem::directory_iterator at(absl::StrCat("/proc/", process, "/task"), error), end;
       !error && at != end; at.increment(error)) {
    const char state = StateOf(at->path());
    threads.some_stopped |= state == 'T';
    others |= state != 'T' && state != 'D' && state != 0;
  }
  threads.all_held = !error && !others;
  return threads;
}

bool IsReadable(int fd) {
  pollfd ended = {.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, 0) > 0;
}

void Send(const UniqueFd& process, int signal) {
  ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TgtdPause>> TgtdPause::HoldTgtd(pid_t tgtd, UniqueFd handle) {
  std::unique_ptr<TgtdPause> pause(new TgtdPause(tgtd, std::move(handle)));
  RETURN_IF_ERROR(pause->StartGuard());
  RETURN_IF_ERROR(pause->StopTgtd());
  return pause;
}

absl::Status TgtdPause::StartGuard() {
  const UniqueFd agent(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!agent) return absl::UnavailableError(absl::StrCat("hold tgtd: ", std::strerror(errno)));
  const Clock::time_point before = Clock::now();
  // Not fork(), whose handlers are for a child that goes on with its parent's work.
  const pid_t guard = ::_Fork();
  if (guard == 0) GuardTgtd(handle_.get(), agent.get());
  if (guard < 0) return absl::UnavailableError(absl::StrCat("hold tgtd: fork: ", std::strerror(errno)));
  guard_ = guard;
  end_ = before + absl::ToChronoMilliseconds(kLongestPause - kGuardMargin);
  return absl::OkStatus();
}

absl::Status TgtdPause::StopTgtd() {
  begun_ = Clock::now();
  Send(handle_, SIGSTOP);
  bool begun = false;
  while (Clock::now() < end_) {
    const Threads threads = LookAt(tgtd_);
    // Looked at once more: a thread may have been seen before the stop began.
    if (begun && threads.all_held) return CheckHeld();
    begun |= threads.some_stopped;
    if (IsReadable(handle_.get())) return absl::UnavailableError("hold tgtd: it has died; try again");
    absl::SleepFor(kLookAgain);
  }
  return absl::UnavailableError(absl::StrCat("hold tgtd, process ", tgtd_, ": it has not stopped within ",
                                             absl::FormatDuration(absl::FromChrono(end_ - begun_)),
                                             "; try again"));
}

absl::Status TgtdPause::CheckHeld() const {
  Threads threads = LookAt(tgtd_);
  // A thread whose system call has just ended runs for a moment on its way to stop.
  for (int i = 0; i < kLooksAtOneOnItsWay && threads.some_stopped && !threads.all_held; ++i) {
    absl::SleepFor(kLookAgain);
    threads = LookAt(tgtd_);
  }
  // The pid is tgtd's as long as tgtd has not died, so this is asked after the look.
  if (!threads.some_stopped || !threads.all_held || IsReadable(handle_.get()))
    return absl::UnavailableError("hold tgtd: somebody has ended it or let it go meanwhile; try again");
  if (Clock::now() < end_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "hold tgtd: more than ", absl::FormatDuration(kLongestPause - kGuardMargin),
      " would have been needed, and volumes must not stand still for so long; try again when the "
      "pool's disk is less busy, or with volumes whose files are in fewer pieces"));
}

void TgtdPause::LetGo() {
  if (guard_ == 0) return;
  Send(handle_, SIGCONT);
  ::kill(guard_, SIGKILL);  // our child, not collected yet: its number is nobody else's
  while (::waitpid(guard_, nullptr, 0) < 0 && errno == EINTR) {
  }
  guard_ = 0;
}

}  // namespace lunkeeper
