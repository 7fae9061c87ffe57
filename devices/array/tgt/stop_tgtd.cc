// The order: the pool's own lock, so that no agent starts or watches a tgtd; the processes, each held by a
// pidfd before a second look, so that no stranger with a number used twice is hit; the question about grants,
// to each; the signals; the locks that they held, which the kernel gives up with the last of the threads; and
// what they wrote, to the disk.
#include "devices/array/tgt/stop_tgtd.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "base/unique_fd.h"
#include "devices/array/tgt/cache_id.h"
#include "devices/array/tgt/pool_lock.h"
#include "devices/array/tgt/tgt_client.h"
#include "devices/array/tgt/tgtd_lock.h"

namespace lunkeeper {
namespace {

constexpr size_t kNamed = 5;  // volumes in a message
// Of KillTgtdsForGood. Who holds a lock is looked up seldom, since that means a look at all processes.
constexpr absl::Duration kTryAgain = absl::Microseconds(100), kLookAgain = absl::Milliseconds(200);

absl::StatusOr<UniqueFd> TakePool(const std::string& directory) {
  if (::access((directory + "/catalogue.db").c_str(), F_OK) != 0)
    return absl::NotFoundError(
        absl::StrCat(directory, " is no pool: it has no catalogue.db; is its file system mounted?"));
  absl::StatusOr<UniqueFd> lock = LockPool(directory);
  // Of a file system that has failed; what its tgtds have not written is lost in any case.
  if (absl::IsInternal(lock.status()))
    return absl::InternalError(absl::StrCat(
        lock.status().message(), "; where the file system has failed or is read-only, see that no agent of ",
        directory, " runs, end with `kill -9` the tgtds that `fuser --mount ", directory,
        "` names, unmount it, and repair the disk; devices with unflushed writes fail"));
  if (!absl::IsFailedPrecondition(lock.status())) return lock;
  return absl::FailedPreconditionError(
      absl::StrCat("an agent has the pool ", directory,
                   " open, and would start tgtd again; stop it first (systemctl stop lunkeeper-array@NAME)"));
}

// The volumes with a target that lets its node in, by the targets' names, which end in :VOLUME:GENERATION. A
// session says too little: a node that has just lost its connection comes back. Heartbeats do not count: each
// node that is up sends them, and loses nothing by a pause.
absl::StatusOr<std::vector<std::string>> ListVolumesInUse(const TgtClient& tgtd) {
  ASSIGN_OR_RETURN(const std::vector<TgtTarget> targets, tgtd.ListTargets());
  std::vector<std::string> volumes;
  for (const TgtTarget& target : targets) {
    const std::vector<std::string> words = absl::StrSplit(target.name, ':');
    if (!target.open || words.size() < 2) continue;
    if (words[words.size() - 2] != "heartbeat") volumes.push_back(words[words.size() - 2]);
  }
  return volumes;
}

// A tgtd's socket is found by a name, which can be another one's: in a mount namespace that is not its own.
absl::Status CheckAnswers(pid_t process, const TgtClient& tgtd) {
  const absl::StatusOr<pid_t> answers = tgtd.FindProcess();
  // The question itself reports a tgtd that is silent.
  if (!answers.ok() || *answers == process) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "tgtd, process ", process, ", cannot be asked whether volumes are in use: another process",
      *answers > 0 ? absl::StrCat(", ", *answers, ",") : "",
      " answers at its control port here; run this command in the container or mount namespace of process ",
      process, ", or --with-sessions ends it all the same"));
}

absl::Status CheckUnused(pid_t process, const std::string& port) {
  int number = 0;
  if (!absl::SimpleAtoi(port, &number))
    return absl::UnavailableError(
        absl::StrCat("process ", process, " does not say which control port it has"));
  const TgtClient tgtd(number);
  RETURN_IF_ERROR(CheckAnswers(process, tgtd));
  const absl::StatusOr<std::vector<std::string>> volumes = ListVolumesInUse(tgtd);
  if (!volumes.ok())
    return absl::UnavailableError(
        absl::StrCat("tgtd, process ", process, ", does not say whether volumes are in use (",
                     volumes.status().message(), "); --with-sessions ends it all the same"));
  if (volumes->empty()) return absl::OkStatus();
  const std::vector<std::string> named(volumes->begin(),
                                       volumes->begin() + std::min(kNamed, volumes->size()));
  return absl::FailedPreconditionError(
      absl::StrCat(volumes->size(), " volumes are granted to nodes (", absl::StrJoin(named, ", "),
                   volumes->size() > kNamed ? ", …" : "",
                   "): stop their pods. Or give --with-sessions: their I/O then waits until the array serves "
                   "again, and fails for good if that takes longer than the data paths' replacement time"));
}

absl::Status AwaitEnd(const TgtdLock& lock, SteadyDeadline deadline) {
  while (!lock.TakeLock().ok()) {
    if (deadline.IsOver())
      return absl::DeadlineExceededError(
          "tgtd was killed and has not ended: it waits for its disk; repeat the command when that answers");
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::OkStatus();
}

// A tgtd of the pool, held by a pidfd.
struct RunningTgtd {
  TgtdLock lock;
  pid_t process = 0;
  UniqueFd handle;
};

// A pidfd of a tgtd that has the lock; none: it has it no more.
UniqueFd HoldTgtd(const TgtdLock& lock, pid_t process) {
  UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  return handle && lock.FindHolder() == process ? std::move(handle) : UniqueFd();
}

absl::StatusOr<std::vector<RunningTgtd>> FindRunning(const std::string& pool) {
  std::vector<RunningTgtd> running;
  for (int number = 0; number < kMostTgtds; ++number) {
    const std::string path = TgtdLockPath(pool, number);
    if (number > 0 && ::access(path.c_str(), F_OK) != 0) continue;
    RunningTgtd tgtd{.lock = TgtdLock(path), .process = 0, .handle = {}};
    const absl::Status taken = tgtd.lock.TakeLock().status();
    if (taken.ok()) continue;
    tgtd.process = tgtd.lock.FindHolder();
    if (tgtd.process == 0) return taken;
    tgtd.handle = HoldTgtd(tgtd.lock, tgtd.process);
    if (!tgtd.handle)
      return absl::UnavailableError("tgtd has changed while it was looked at; repeat the command");
    running.push_back(std::move(tgtd));
  }
  return running;
}

absl::Status KillRunning(const std::vector<RunningTgtd>& running, SteadyDeadline deadline) {
  for (const RunningTgtd& tgtd : running) {
    if (::syscall(SYS_pidfd_send_signal, tgtd.handle.get(), SIGKILL, nullptr, 0) != 0 && errno != ESRCH)
      return absl::ErrnoToStatus(errno, absl::StrCat("kill tgtd, process ", tgtd.process));
  }
  for (const RunningTgtd& tgtd : running) RETURN_IF_ERROR(AwaitEnd(tgtd.lock, deadline));
  return absl::OkStatus();
}

// Locks of tgtds that are to be ended for good.
struct Ending {
  std::list<TgtdLock> left;      // not taken yet
  std::vector<UniqueFd> locks;   // taken
  std::vector<UniqueFd> killed;  // pidfds of tgtds
};

// The lock is taken before the signal, so nobody else gets it when the tgtd ends. Where that is not allowed,
// it must be taken before an agent's thread misses the tgtd. So all are found before the first is killed.
void KillHolders(Ending& ending) {
  const size_t before = ending.killed.size();
  std::erase_if(ending.left, [&ending](const TgtdLock& lock) {
    const pid_t process = lock.FindHolder();
    // Not this one, a thread of which is about to start a tgtd.
    if (process == 0 || process == ::getpid()) return false;
    UniqueFd handle = HoldTgtd(lock, process);
    UniqueFd shared = handle ? lock.ShareLock(process, handle) : UniqueFd();
    const bool is_taken = static_cast<bool>(shared);
    if (is_taken) ending.locks.push_back(std::move(shared));
    if (handle) ending.killed.push_back(std::move(handle));
    return is_taken;
  });
  for (size_t i = before; i < ending.killed.size(); ++i)
    ::syscall(SYS_pidfd_send_signal, ending.killed[i].get(), SIGKILL, nullptr, 0);
}

void AwaitEnds(const Ending& ending, SteadyDeadline deadline) {
  for (const UniqueFd& process : ending.killed) {
    pollfd end = {.fd = process.get(), .events = POLLIN, .revents = 0};
    ::poll(&end, 1, static_cast<int>(absl::ToInt64Milliseconds(deadline.left())));
  }
}

}  // namespace

absl::Status StopPoolTgtd(const StopTgtdRequest& request, absl::Duration within) {
  const SteadyDeadline deadline(within);
  ASSIGN_OR_RETURN(const UniqueFd pool, TakePool(request.pool_dir));
  // One whose lock file was removed is not found below, and would write after the note that all is flushed.
  RETURN_IF_ERROR(CheckLocksAreThere(request.pool_dir));
  ASSIGN_OR_RETURN(const std::vector<RunningTgtd> running, FindRunning(request.pool_dir));
  // All of them before the first is ended.
  for (const RunningTgtd& tgtd : running) {
    if (!request.with_sessions) RETURN_IF_ERROR(CheckUnused(tgtd.process, ReadControlPort(tgtd.process)));
  }
  RETURN_IF_ERROR(KillRunning(running, deadline));
  return FlushPool({.boot_id = request.boot_id_path, .pool = request.pool_dir, .memory = {}});
}

absl::Status KillTgtds(const std::string& pool_dir, absl::Duration within) {
  const SteadyDeadline deadline(within);
  ASSIGN_OR_RETURN(const std::vector<RunningTgtd> running, FindRunning(pool_dir));
  return KillRunning(running, deadline);
}

// None is waited for alone: a lock that cannot be taken must not keep the tgtds of the others alive.
std::vector<UniqueFd> KillTgtdsForGood(const std::string& pool_dir, absl::Duration within) {
  const SteadyDeadline deadline(within);
  Ending ending;
  for (int number = 0; number < kMostTgtds; ++number) {
    const std::string path = TgtdLockPath(pool_dir, number);
    if (number == 0 || ::access(path.c_str(), F_OK) == 0) ending.left.emplace_back(path);
  }
  const auto take = [&ending](const TgtdLock& lock) {
    UniqueFd taken = lock.TryLock();
    const bool is_taken = static_cast<bool>(taken);
    if (is_taken) ending.locks.push_back(std::move(taken));
    return is_taken;
  };
  do {
    KillHolders(ending);
    const SteadyDeadline look_again(std::min(deadline.left(), kLookAgain));
    while (std::erase_if(ending.left, take), !ending.left.empty() && !look_again.IsOver())
      absl::SleepFor(kTryAgain);
  } while (!ending.left.empty() && !deadline.IsOver());
  AwaitEnds(ending, deadline);
  return std::move(ending.locks);
}

}  // namespace lunkeeper
