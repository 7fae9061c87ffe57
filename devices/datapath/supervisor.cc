// The main thread waits for four descriptors: the control socket, the eventfd that workers raise, signals,
// and the worker's pidfd. It must never wait for anything else: it starts the next worker, and workers are
// children of this thread (a child with PR_SET_PDEATHSIG dies with the thread that forked it, not with the
// process).
//
// Killed at any line, this process leaves orphaned devices and nothing else; the lock file only says that no
// supervisor lives, so that the next one may take them for orphans.

#include "devices/datapath/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/child.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/datapath/control_socket.h"
#include "devices/datapath/locked_memory.h"
#include "devices/datapath/loop_device.h"

namespace lunkeeper {
namespace {

// Each call has a thread, and may wait for minutes. Beyond this many, new connections are closed at once,
// which their clients take for an interruption and repeat.
constexpr size_t kMaxCalls = 256;
constexpr auto kTick = std::chrono::seconds(1);
// How long to wait for events: with a worker, until the next tick; without one, until it may be started.
constexpr int kWaitMs = 1000;
constexpr int kWaitWithoutWorkerMs = 50;

// One supervisor at a socket. The holder of the lock may take the devices of an earlier supervisor for
// orphans.
absl::StatusOr<UniqueFd> LockBeside(const std::string& socket_path) {
  const std::string path = socket_path + ".lock";
  UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", path));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError(absl::StrCat("another data path holds ", path));
  }
  return lock;
}

// Before any thread starts: threads inherit the mask, and one that did not would take the signal.
UniqueFd BlockStopSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGINT);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

WorkerOptions WorkerOptionsOf(const DatapathOptions& options) {
  WorkerOptions worker;
  // More loops than four gain nothing that was measured (docs/performance.md).
  const uint32_t half = std::clamp(std::thread::hardware_concurrency() / 2, 1U, 4U);
  worker.threads = std::clamp<uint32_t>(options.threads == 0 ? half : options.threads, 1, kMaxThreads);
  worker.pool_bytes = options.pool_bytes;
  worker.replacement_timeout_ms =
      static_cast<uint64_t>(absl::ToInt64Milliseconds(options.replacement_timeout));
  worker.hang_ticks = static_cast<int>(std::max<int64_t>(absl::ToInt64Seconds(options.hang_timeout), 2));
  return worker;
}

// The path, not /proc/self/exe itself: an upgrade means what is installed there by then.
std::string BinaryToUpgradeTo(const DatapathOptions& options) {
  if (!options.worker_binary.empty()) return options.worker_binary;
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

// A volume takes four descriptors, and calls and children some more.
void AllowManyDescriptors() {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max<rlim_t>(limit.rlim_cur, std::min<rlim_t>(limit.rlim_max, 16384));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Create(const DatapathOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(options.socket).parent_path(), error);
  AllowManyDescriptors();
  ASSIGN_OR_RETURN(UniqueFd lock, LockBeside(options.socket));
  ASSIGN_OR_RETURN(UniqueFd listener, ListenAt(options.socket));
  SweepLoops();
  ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Create());
  return std::unique_ptr<Supervisor>(
      new Supervisor(options, std::move(memory), std::move(lock), std::move(listener)));
}

Supervisor::Supervisor(const DatapathOptions& options, SharedMemory memory, UniqueFd lock, UniqueFd listener)
    : socket_path_(options.socket),
      lock_(std::move(lock)),
      listener_(std::move(listener)),
      answers_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      signals_(BlockStopSignals()),
      volumes_(WorkerOptionsOf(options), std::move(memory), answers_.get(), LoopTagPrefix(options.socket),
               BinaryToUpgradeTo(options)),
      control_calls_(volumes_, options.resend) {}

Supervisor::~Supervisor() { ::unlink(socket_path_.c_str()); }

absl::Status Supervisor::Run() {
  LogInfo("datapath", "serving", {{"socket", socket_path_}});
  auto next_tick = std::chrono::steady_clock::now();
  while (!MayEnd()) {
    WaitForEvents();
    if (std::chrono::steady_clock::now() < next_tick) continue;
    next_tick = std::chrono::steady_clock::now() + kTick;
    RunTick();
  }
  EndEverything();
  return absl::OkStatus();
}

void Supervisor::WaitForEvents() {
  const int worker = volumes_.KeepWorkerRunning();
  pollfd waiting[] = {{listener_.get(), POLLIN, 0},
                      {answers_.get(), POLLIN, 0},
                      {signals_.get(), POLLIN, 0},
                      {worker, POLLIN, 0}};
  ::poll(waiting, 4, worker >= 0 ? kWaitMs : kWaitWithoutWorkerMs);
  if (waiting[0].revents != 0) AcceptCall();
  if (waiting[1].revents != 0) ReadAnswers();
  if (waiting[2].revents != 0) ReadSignals();
  if (waiting[3].revents != 0) volumes_.CollectDeadWorker();
}

void Supervisor::ReadAnswers() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(answers_.get(), &count, sizeof(count));
  volumes_.WakeWaiters();
}

void Supervisor::ReadSignals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) ++stop_signals_;
  const size_t attached = volumes_.StartDraining();
  LogInfo("datapath", "told to stop", {{"attached volumes", std::to_string(attached)}});
}

void Supervisor::RunTick() {
  JoinEndedCalls();
  CollectLateChildren();
  volumes_.KillHungWorker();
}

void Supervisor::AcceptCall() {
  JoinEndedCalls();  // only calls under way count against the limit
  // PeerIsRoot: the socket's mode is not trusted alone (control_socket.cc).
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket || !PeerIsRoot(socket.get()) || calls_.size() >= kMaxCalls) return;
  CallThread& call = calls_.emplace_back();
  call.thread = std::thread([this, &call, connection = std::move(socket)] {
    control_calls_.ServeConnection(connection.get());
    call.ended = true;
  });
}

void Supervisor::JoinEndedCalls() {
  calls_.remove_if([](CallThread& call) {
    if (!call.ended) return false;
    call.thread.join();
    return true;
  });
}

bool Supervisor::MayEnd() { return stop_signals_ > 1 || volumes_.IsDrained(); }

// In this order: once all I/O fails and all waiting ends, no call can be stuck, and each can be joined.
void Supervisor::EndEverything() {
  volumes_.EndAll();
  for (CallThread& call : calls_) call.thread.join();
  calls_.clear();
}

}  // namespace lunkeeper
