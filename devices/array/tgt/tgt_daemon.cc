// The life of tgtd as seen from here:
//
//   nobody answers --SpawnTgtd--> answers --put_back_ ok--> targets whole --OpenPortals-> ready
//        ^                            |                                                    |
//        |                            | put_back_: FAILED_PRECONDITION, and taken over     |
//        +----------- KillTgtd -------+                                                    |
//        +--------------------------- it died (its pidfd is readable) ---------------------+
//
// StartServing runs the first round on the caller's thread, so that its error reaches the caller; from then
// on the watching thread owns process_. tgtd is in a session of its own, so that it outlives this program: an
// upgrade of the agent costs no session. Its only descriptor from here is the TgtdLock, which keeps a second
// tgtd from the pool, whatever control port and portal the next start of this program has.
//
// The process is held by a pidfd. A pid alone could be reused between two looks, and then a signal would hit
// a stranger.
#include "devices/array/tgt/tgt_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/event_fd.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "devices/array/tgt/spawn_tgtd.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(10);
constexpr absl::Duration kTick = absl::Seconds(1);
// Of one look. The end of a tgtd is noticed late by no more than this, and only if it hung before.
constexpr absl::Duration kLookTimeout = absl::Seconds(2);
constexpr int kLooksAtStart = 3;  // the second one sees which connections took nothing since the first
constexpr absl::Duration kOpenAgainAfter = absl::Seconds(10);

// Waits until one of the two is readable. Its index; -1: neither, by the timeout.
int WaitForEither(int first, int second, absl::Duration timeout) {
  pollfd fds[] = {{.fd = first, .events = POLLIN, .revents = 0},
                  {.fd = second, .events = POLLIN, .revents = 0}};
  if (::poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(timeout))) <= 0) return -1;
  return fds[0].revents != 0 ? 0 : 1;
}

bool IsAmong(const std::vector<std::string>& portals, const std::string& portal) {
  return std::find(portals.begin(), portals.end(), portal) != portals.end();
}

}  // namespace

TgtDaemon::TgtDaemon(TgtDaemonOptions options, TgtClient& client, ImageOpenings* openings, PutBack put_back,
                     Tick tick, Gone gone)
    : options_(std::move(options)),
      put_back_(std::move(put_back)),
      tick_(std::move(tick)),
      gone_(std::move(gone)),
      client_(client),
      openings_(openings),
      lock_(options_.lock_path),
      output_(options_.output_path, [](const std::string& line) { LogInfo("tgtd", line); }),
      connections_(options_.portals),
      stuck_(&client_, [this] { return options_.portals; }),
      stop_(::eventfd(0, EFD_CLOEXEC)) {}

void TgtDaemon::StopWatching() {
  if (!watcher_.joinable()) return;
  ticker_.reset();
  RaiseEvent(stop_.get());
  watcher_.join();
}

absl::Status TgtDaemon::StartServing() {
  RETURN_IF_ERROR(BringUp());
  BeginWatching();
  return absl::OkStatus();
}

void TgtDaemon::KeepTrying(const absl::Status& why) {
  process_ = {};
  client_.TalkOnlyTo(-1);  // nobody: another tgtd may take the control port meanwhile
  NoteTrouble(why);
  BeginWatching();
}

void TgtDaemon::BeginWatching() {
  watcher_ = std::thread([this] { WatchTgtd(); });
  ticker_.emplace(kTick, [this] { RunTick(); });
}

absl::Status TgtDaemon::WaitReady(absl::Time deadline) {
  const SteadyLock lock(&mu_);
  if (mu_.AwaitUntil(absl::Condition(&ready_), SteadyDeadline(deadline))) return absl::OkStatus();
  return BeingStarted();
}

absl::Status TgtDaemon::BeingStarted() const {
  return absl::UnavailableError(absl::StrCat("array: tgtd of control port ", options_.control_port,
                                             " is being started again", trouble_.empty() ? "" : ": ",
                                             trouble_, "; try again"));
}

absl::Status TgtDaemon::CheckAnswering() const {
  const SteadyLock lock(&mu_);
  if (!ready_) return BeingStarted();
  if (!hangs_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("array: tgtd, process ", served_by_, ", has not answered for ",
                                             absl::FormatDuration(kHangsAfter),
                                             ", so the I/O of every volume may stand still; see that the "
                                             "pool's disk answers and that the process is "
                                             "not stopped (`cat /proc/",
                                             served_by_, "/status`). `kill -9 ", served_by_,
                                             "` has it started again, and initiators go on by themselves"));
}

absl::StatusOr<std::unique_ptr<TgtdPause>> TgtDaemon::PauseTgtd() const {
  RETURN_IF_ERROR(CheckAnswering());
  pid_t pid = 0;
  UniqueFd handle;
  {
    const SteadyLock lock(&mu_);
    pid = served_by_;
    handle.Reset(::fcntl(served_handle_.get(), F_DUPFD_CLOEXEC, 0));
  }
  if (!handle) return absl::UnavailableError("array: tgtd is being started again");
  return TgtdPause::HoldTgtd(pid, std::move(handle));
}

uint64_t TgtDaemon::CountDeaths() const {
  const SteadyLock lock(&mu_);
  return deaths_;
}

absl::StatusOr<TgtDaemon::Process> TgtDaemon::FindRunning() {
  ASSIGN_OR_RETURN(const pid_t pid, client_.FindProcess());
  Process process{.pid = pid,
                  .handle = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))),
                  .taken_over = true};
  if (!process.handle) {
    return absl::UnavailableError(absl::StrCat("watch tgtd, process ", pid, ": ", std::strerror(errno)));
  }
  return process;
}

absl::StatusOr<TgtDaemon::Process> TgtDaemon::FindOrSpawn() {
  const SteadyDeadline deadline(kStartTimeout);
  pid_t child = 0;
  UniqueFd child_handle;
  absl::StatusOr<UniqueFd> lock = absl::UnavailableError("not tried");
  while (!deadline.IsOver()) {
    auto found = FindRunning();
    if (found.ok()) {
      RETURN_IF_ERROR(lock_.CheckHolder(found->pid, options_.control_port));
      client_.TalkOnlyTo(found->pid);
      // The program before this one may have died while it held tgtd, and its guard with it (tgtd_pause.h).
      ::syscall(SYS_pidfd_send_signal, found->handle.get(), SIGCONT, nullptr, 0);
      found->taken_over = found->pid != child;
      return found;
    }
    // Held by a tgtd that is starting or dying, or by one that is not to be found on our control port.
    if (!lock.ok()) lock = lock_.TakeLock();
    if (!lock.ok()) {
      if (WaitForEither(-1, stop_.get(), absl::Milliseconds(100)) == 1) break;
      continue;
    }
    if (!child_handle) {
      if (gone_) gone_();
      ASSIGN_OR_RETURN(child, SpawnTgtd(options_, output_.path(), *lock));
      FAIL_POINT("array.tgtd.spawned");
      child_handle = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
    }
    // Our child exits at once while another tgtd, one that is starting or dying, holds the control port. Then
    // wait for that one to answer or go, and try again until the deadline.
    const int which = WaitForEither(child_handle.get(), stop_.get(), absl::Milliseconds(5));
    if (which == 1) break;
    if (which == 0) {
      ::waitpid(child, nullptr, 0);
      child_handle.Reset();
      WaitForEither(-1, stop_.get(), absl::Milliseconds(100));
    }
  }
  RETURN_IF_ERROR(lock.status());
  return absl::UnavailableError(absl::StrCat("start ", options_.binary,
                                             ": it does not answer on control port ", options_.control_port,
                                             "; is that used by another tgtd?"));
}

// A tgtd that is taken over may be waiting for a peer that takes no answers, for as long as nobody ends that.
void TgtDaemon::EndStuckUntilItAnswers() {
  TgtClient look(options_.control_port, kLookTimeout);
  look.TalkOnlyTo(process_.pid);
  for (int looks = 0; looks < kLooksAtStart && !look.ListPortals().ok(); ++looks)
    stuck_.EndAllStuck(process_.pid);
}

absl::Status TgtDaemon::BringUp() {
  absl::StatusOr<Process> found = FindOrSpawn();
  if (!found.ok()) return EndSilentHolder(found.status()) ? BringUp() : found.status();
  process_ = *std::move(found);
  connections_.EndSurplus(process_.pid, process_.handle);  // with too many of them it answers nobody
  if (process_.taken_over) EndStuckUntilItAnswers();
  const absl::Status closed = CloseOtherPortals();
  const absl::Status status = closed.ok() ? PutTargetsBack() : closed;
  // A tgtd of ours that serves what the catalogue does not know: after a restore, or if a target's number was
  // recorded and lost. Its sessions would write to volumes that nobody granted, so it must go.
  if (closed.ok() && absl::IsFailedPrecondition(status) && process_.taken_over) {
    LogWarn("array", "tgtd cannot be taken over, starting afresh", {{"why", std::string(status.message())}});
    KillTgtd();
    return BringUp();
  }
  if (HangsOnImage(status)) {
    KillTgtd();
    return BringUp();  // with one image less, at least
  }
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(OpenPortals());
  FAIL_POINT("array.tgtd.portal_open");
  SetReady(true);
  LogInfo("array", "tgtd serves",
          {{"portals", absl::StrJoin(options_.portals, ",")}, {"process", absl::StrCat(process_.pid)}});
  return absl::OkStatus();
}

// Whether to end tgtd for it.
bool TgtDaemon::HangsOnImage(const absl::Status& trouble) {
  if (!absl::IsUnavailable(trouble) || openings_ == nullptr || !openings_->BlameImage()) return false;
  LogError("array", "tgtd does not answer while it opens or closes an image, and is started again without it",
           {{"process", absl::StrCat(process_.pid)}, {"trouble", std::string(trouble.message())}});
  return true;
}

// One that has hung for long takes no more connections, so it is found only by its lock. One of another
// control port was not asked, and may be well.
bool TgtDaemon::EndSilentHolder(const absl::Status& trouble) {
  const pid_t holder = lock_.FindHolder();
  if (holder == 0 || holder == ::getpid() || WaitForEither(-1, stop_.get(), absl::ZeroDuration()) == 1)
    return false;
  process_ = {.pid = holder, .handle = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, holder, 0)))};
  const bool is_still = process_.handle && lock_.CheckHolder(holder, options_.control_port).ok() &&
                        ReadControlPort(holder) == absl::StrCat(options_.control_port);
  const bool hangs = is_still && HangsOnImage(absl::UnavailableError(trouble.message()));
  if (hangs) KillTgtd();
  process_ = {};
  return hangs;
}

absl::Status TgtDaemon::PutTargetsBack() {
  const absl::MutexLock lock(&targets_mu_);
  return put_back_(process_.taken_over);
}

// A disk that does not answer holds this thread, and not the one that reports a tgtd that hangs.
void TgtDaemon::RunTick() {
  if (!WaitReady(absl::Now()).ok()) return;
  const absl::MutexLock lock(&targets_mu_);
  tick_();
}

absl::Status TgtDaemon::CloseOtherPortals() {
  ASSIGN_OR_RETURN(const std::vector<std::string> portals, client_.ListPortals());
  for (const std::string& portal : portals) {
    if (!IsAmong(options_.portals, portal)) RETURN_IF_ERROR(client_.ClosePortal(portal));
  }
  return absl::OkStatus();
}

// One is enough to serve: a network card that is down must not keep the array from the other network.
absl::Status TgtDaemon::OpenPortals() {
  ASSIGN_OR_RETURN(const std::vector<std::string> before, client_.ListPortals());
  if (OpenMissingPortals(before)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("no portal can be opened; is ",
                                             absl::StrJoin(options_.portals, " or "),
                                             " used by another program, or not of this host? Debian's "
                                             "tgt.service takes port 3260: systemctl disable --now tgt"));
}

// Whether one is open then. Each attempt costs tgtd some lines in the log, so they are rare.
bool TgtDaemon::OpenMissingPortals(const std::vector<std::string>& open) {
  opened_ = std::chrono::steady_clock::now();
  bool some = false;
  for (const std::string& portal : options_.portals) {
    const absl::Status opened = IsAmong(open, portal) ? absl::OkStatus() : client_.OpenPortal(portal);
    some |= opened.ok();
    if (!NoteShut(portal, !opened.ok())) continue;
    if (opened.ok()) {
      LogInfo("array", "a portal is open that could not be opened before", {{"portal", portal}});
    } else {
      LogWarn("array", "a portal cannot be opened: its address is not of this host, or its port is in use",
              {{"portal", portal}});
    }
  }
  return some;
}

// Whether that is new.
bool TgtDaemon::NoteShut(const std::string& portal, bool shut) {
  const SteadyLock lock(&mu_);
  return shut ? shut_portals_.insert(portal).second : shut_portals_.erase(portal) > 0;
}

std::vector<std::string> TgtDaemon::ListOpenPortals() const {
  const SteadyLock lock(&mu_);
  std::vector<std::string> open;
  for (const std::string& portal : options_.portals)
    if (!shut_portals_.contains(portal)) open.push_back(portal);
  return open.empty() ? options_.portals : open;
}

void TgtDaemon::KillTgtd() {
  if (!process_.handle) return;
  ::syscall(SYS_pidfd_send_signal, process_.handle.get(), SIGKILL, nullptr, 0);
  WaitForEither(process_.handle.get(), -1, kStartTimeout);
  ::waitpid(process_.pid, nullptr, WNOHANG);  // no child of ours when it was taken over
  process_ = {};
}

void TgtDaemon::WatchTgtd() {
  absl::Duration pause = absl::ZeroDuration();
  while (true) {
    const int which = WaitForEither(process_.handle.get(), stop_.get(), process_.handle ? kTick : pause);
    if (which == 1) return;
    output_.RelayLines();
    if (which == -1 && process_.handle) {
      // First: with too many of them tgtd does not answer.
      connections_.EndSurplus(process_.pid, process_.handle);
      LookWhetherItAnswers();
      continue;
    }
    if (process_.handle) {
      LogWarn("array", "tgtd died", {{"process", absl::StrCat(process_.pid)}});
      SetReady(false);
      KillTgtd();
    }
    const absl::Status up = BringUp();
    NoteTrouble(up);
    if (up.ok()) continue;
    process_ = {};
    pause = absl::Milliseconds(200);
  }
}

// Logged once, and not with each attempt.
void TgtDaemon::NoteTrouble(const absl::Status& up) {
  const std::string trouble(up.message());
  {
    const SteadyLock lock(&mu_);
    if (std::exchange(trouble_, trouble) == trouble) return;
  }
  if (!up.ok()) LogError("array", trouble);
}

void TgtDaemon::LookWhetherItAnswers() {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  TgtClient look(options_.control_port, kLookTimeout);
  look.TalkOnlyTo(process_.pid);
  const auto open = look.ListPortals();
  if (open.ok()) answered_ = now();
  if (!open.ok()) stuck_.EndAllStuck(process_.pid);
  if (open.ok() && openings_ != nullptr) openings_->NoteAnswer();
  if (open.ok() && absl::FromChrono(now() - opened_) >= kOpenAgainAfter) OpenMissingPortals(*open);
  const bool hangs = absl::FromChrono(now() - answered_) >= kHangsAfter;
  bool is_new = false;
  {
    const SteadyLock lock(&mu_);
    is_new = std::exchange(hangs_, hangs) != hangs;
  }
  if (hangs && is_new) LogError("array", std::string(CheckAnswering().message()));
  // The watching thread then finds that it has died. With each look: slow images before the silent one may
  // have made it hang already.
  if (hangs && HangsOnImage(open.status()))
    ::syscall(SYS_pidfd_send_signal, process_.handle.get(), SIGKILL, nullptr, 0);
  if (!hangs && is_new) LogInfo("array", "tgtd answers again", {{"process", absl::StrCat(process_.pid)}});
}

void TgtDaemon::SetReady(bool ready) {
  answered_ = std::chrono::steady_clock::now();
  const SteadyLock lock(&mu_);
  if (ready_ && !ready) ++deaths_;
  ready_ = ready;
  hangs_ = false;
  served_by_ = process_.pid;
  served_handle_.Reset(ready ? ::fcntl(process_.handle.get(), F_DUPFD_CLOEXEC, 0) : -1);
}

}  // namespace lunkeeper
