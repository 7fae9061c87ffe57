// A worker is this same program, executed anew (`lunkeeper datapath --worker-socket 3`): a fork alone would
// share the supervisor's memory, secrets and locks, and could not be another version of the program.
//
// It has four descriptors: standard streams and the socket at 3. Everything else comes by messages, with
// their descriptors: the shared memory and the eventfd with `start`, a FUSE descriptor with each volume.
//
//   Start --> running --> ready --> dead --> CollectDead --> Start
//
// Ready: it has written the version of the shared memory. Dead: by itself, or killed when it hung or for an
// upgrade.

#include "devices/datapath/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/datapath/control_socket.h"

namespace lunkeeper {
namespace {

constexpr char kThisProgram[] = "/proc/self/exe";
// A worker that dies is replaced at once, since its volumes stand still. Only when they die like flies, from
// something that every worker meets, is there a pause, so that the machine can do something else.
constexpr size_t kManyDeaths = 25;
constexpr auto kShortTime = std::chrono::seconds(30);
constexpr auto kBackOff = std::chrono::seconds(5);
// A worker that reads no commands for so long is hung. The supervisor's lock is held meanwhile.
constexpr timeval kSendTimeout = {.tv_sec = 5, .tv_usec = 0};

}  // namespace

WorkerProcess::WorkerProcess(WorkerOptions options, SharedMemory* memory, int answers)
    : options_(options), memory_(memory), answers_(answers), last_heartbeats_(options.threads) {}

WorkerProcess::~WorkerProcess() {
  if (!running()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

// In the child, after fork() in a program with threads: system calls only.
void WorkerProcess::ExecProgram(const std::string& program, int socket) const {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The supervisor blocks its stop signals (they come by a signalfd), and exec keeps the mask.
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // By way of a high number: the socket may be at 3 already, and dup2 to itself would leave it close-on-exec.
  const int high = ::fcntl(socket, F_DUPFD, 10);
  ::dup2(high, 3);
  ::syscall(SYS_close_range, 4U, ~0U, 0U);
  ::execl(program.c_str(), "lunkeeper", "datapath", "--worker-socket", "3", static_cast<char*>(nullptr));
  ::_exit(127);
}

absl::Status WorkerProcess::Start() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return absl::ErrnoToStatus(errno, "making the worker's socket");
  }
  socket_.Reset(pair[0]);
  const UniqueFd theirs(pair[1]);
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &kSendTimeout, sizeof(kSendTimeout));
  memory_->state()->version = 0;
  upgrading_ = !upgrade_to_.empty();
  const std::string program = upgrading_ ? std::exchange(upgrade_to_, "") : kThisProgram;
  const pid_t child = ::fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "starting the worker");
  if (child == 0) ExecProgram(program, theirs.get());
  pid_ = child;
  pidfd_.Reset(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  ++generation_;
  silent_ticks_ = 0;
  LogInfo("datapath", "worker started", {{"pid", std::to_string(child)}, {"program", program}});
  FAIL_POINT("datapath.worker.started");

  datapath::WorkerCommand command;
  auto* start = command.mutable_start();
  start->set_threads(options_.threads);
  start->set_pool_bytes(options_.pool_bytes);
  start->set_replacement_timeout_ms(options_.replacement_timeout_ms);
  SendCommand(command, {memory_->fd(), answers_});
  return absl::OkStatus();
}

void WorkerProcess::KillWorker() {
  if (running()) ::kill(pid_, SIGKILL);
}

void WorkerProcess::CollectDead() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  LogWarn("datapath", "worker died",
          {{"pid", std::to_string(pid_)},
           {"how", WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                                       : absl::StrCat("exit code ", WEXITSTATUS(status))}});
  upgrade_failed_ = upgrading_ && memory_->state()->version != kSharedStateVersion;
  pid_ = -1;
  pidfd_.Reset();
  socket_.Reset();

  const auto now = Clock::now();
  deaths_.push_back(now);
  while (deaths_.front() < now - kShortTime) deaths_.pop_front();
  const bool many = deaths_.size() >= kManyDeaths;
  next_start_ = many ? now + kBackOff : now;
  trouble_ = many ? absl::StrCat("the data path's worker died ", deaths_.size(), " times in ",
                                 std::chrono::seconds(kShortTime).count(), " s; see its log")
                  : "";
}

void WorkerProcess::GiveVolume(SupervisedVolume& volume) {
  datapath::WorkerCommand command;
  command.set_slot(volume.slot);
  *command.mutable_add()->mutable_volume() = volume.options;
  command.mutable_add()->set_resend(volume.service == SupervisedVolume::Service::kGiven);
  volume.service = SupervisedVolume::Service::kGiven;
  SendCommand(command, {volume.fuse.device.get()});
  if (volume.fail_requested) SendFail(volume, volume.reason);
}

void WorkerProcess::SendFail(const SupervisedVolume& volume, const std::string& reason) {
  datapath::WorkerCommand fail;
  fail.set_slot(volume.slot);
  fail.mutable_fail()->set_reason(reason);
  SendCommand(fail);
}

bool WorkerProcess::SendCommand(const datapath::WorkerCommand& command, const std::vector<int>& fds) {
  if (!running()) return false;
  const absl::Status sent = SendMessage(socket_.get(), command, fds);
  if (sent.ok()) return true;
  LogError("datapath", "worker takes no commands and is killed", {{"error", std::string(sent.message())}});
  KillWorker();
  return false;
}

// Counted in calls rather than measured by a clock, so that a machine that was asleep does not count as a
// silence.
bool WorkerProcess::IsHung(bool its_volumes_survive) {
  if (!running()) return false;
  bool all_heartbeat = true;
  for (size_t i = 0; i < last_heartbeats_.size(); ++i) {
    const uint64_t heartbeat = memory_->state()->heartbeats[i];
    all_heartbeat = (std::exchange(last_heartbeats_[i], heartbeat) != heartbeat) && all_heartbeat;
  }
  silent_ticks_ = all_heartbeat ? 0 : silent_ticks_ + 1;
  return silent_ticks_ >= (its_volumes_survive ? options_.hang_ticks : options_.hang_ticks_if_all_is_lost);
}

}  // namespace lunkeeper
