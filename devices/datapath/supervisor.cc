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
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/datapath/control_socket.h"
#include "devices/datapath/isolated.h"
#include "devices/datapath/locked_memory.h"
#include "devices/datapath/loop_device.h"

namespace lunkeeper {
namespace {

constexpr size_t kMaxCalls = 256;
constexpr auto kTick = std::chrono::seconds(1);

// One supervisor a socket: whoever has the lock may take the devices of a supervisor that died for orphans.
absl::StatusOr<UniqueFd> LockBeside(const std::string& socket_path) {
  const std::string path = socket_path + ".lock";
  UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", path));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError(absl::StrCat("another data path holds ", path));
  }
  return lock;
}

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
  const uint32_t half = std::clamp(std::thread::hardware_concurrency() / 2, 1U, 4U);
  worker.threads = std::clamp<uint32_t>(options.threads == 0 ? half : options.threads, 1, kMaxThreads);
  worker.pool_bytes = options.pool_bytes;
  worker.replacement_timeout_ms =
      static_cast<uint64_t>(absl::ToInt64Milliseconds(options.replacement_timeout));
  worker.hang_ticks = static_cast<int>(std::max<int64_t>(absl::ToInt64Seconds(options.hang_timeout), 2));
  return worker;
}

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
    : options_(options),
      tag_prefix_(LoopTagPrefix(options.socket)),
      upgrade_binary_(BinaryToUpgradeTo(options)),
      memory_(std::move(memory)),
      lock_(std::move(lock)),
      listener_(std::move(listener)),
      answers_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      signals_(BlockStopSignals()),
      worker_(WorkerOptionsOf(options), &memory_, answers_.get()),
      orphans_(FindLoops(tag_prefix_)) {}

Supervisor::~Supervisor() { ::unlink(options_.socket.c_str()); }

absl::Status Supervisor::Run() {
  LogInfo("datapath", "serving", {{"socket", options_.socket}});
  auto next_tick = std::chrono::steady_clock::now();
  while (!MayEnd()) {
    int pidfd = -1;
    {
      absl::MutexLock lock(&mutex_);
      StartWorker();
      pidfd = worker_.pidfd();
    }
    pollfd waiting[] = {{listener_.get(), POLLIN, 0},
                        {answers_.get(), POLLIN, 0},
                        {signals_.get(), POLLIN, 0},
                        {pidfd, POLLIN, 0}};
    ::poll(waiting, 4, pidfd >= 0 ? 1000 : 50);
    if (waiting[0].revents != 0) AcceptCall();
    if (waiting[1].revents != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(answers_.get(), &count, sizeof(count));
      absl::MutexLock wakes_those_who_wait(&mutex_);
    }
    if (waiting[2].revents != 0) TakeSignal();
    if (waiting[3].revents != 0) OnWorkerDeath();
    if (std::chrono::steady_clock::now() < next_tick) continue;
    next_tick = std::chrono::steady_clock::now() + kTick;
    Tick();
  }
  LetGo();
  return absl::OkStatus();
}

void Supervisor::TakeSignal() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) ++stop_signals_;
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  LogInfo("datapath", "told to stop", {{"attached volumes", std::to_string(volumes_.size())}});
}

bool Supervisor::MayEnd() {
  absl::MutexLock lock(&mutex_);
  return stop_signals_ > 1 || (draining_ && volumes_.empty());
}

void Supervisor::StartWorker() {
  if (worker_.running() || WorkerProcess::Clock::now() < worker_.next_start()) return;
  for (auto& [name, volume] : volumes_) SlotOf(*volume).open = false;
  const absl::Status started = worker_.Start();
  if (!started.ok()) {
    LogError("datapath", "no worker", {{"error", started.ToString()}});
    return;
  }
  for (auto& [name, volume] : volumes_) {
    if (volume->fuse.device && volume->lost.empty()) GiveToWorker(*volume);
  }
}

void Supervisor::GiveToWorker(Volume& volume) {
  datapath::WorkerCommand command;
  command.set_slot(volume.slot);
  *command.mutable_add()->mutable_volume() = volume.options;
  command.mutable_add()->set_resend(volume.given);
  volume.given = true;
  worker_.Send(command, {volume.fuse.device.get()});
  if (!volume.failed.empty()) FailInWorker(volume, volume.failed);
}

void Supervisor::FailInWorker(const Volume& volume, const std::string& reason) {
  datapath::WorkerCommand fail;
  fail.set_slot(volume.slot);
  fail.mutable_fail()->set_reason(reason);
  worker_.Send(fail);
}

void Supervisor::OnWorkerDeath() {
  absl::MutexLock lock(&mutex_);
  worker_.Collect();
  for (auto& [name, volume] : volumes_) {
    if (!volume->given || volume->fuse.can_resend || !volume->lost.empty()) continue;
    // What the worker had read is lost to its successor: end all I/O rather than let it hang.
    volume->lost =
        "the data path's worker died, and kernels before 6.9 cannot hand its requests on: unstage and stage "
        "again";
    volume->fuse.device.Reset();
  }
}

void Supervisor::Tick() {
  JoinEnded();
  ReapIsolated();
  absl::MutexLock lock(&mutex_);
  if (!worker_.IsHung()) return;
  LogError("datapath", "worker is hung and is killed", {});
  worker_.Kill();
}

void Supervisor::AcceptCall() {
  JoinEnded();  // only calls under way count against the limit
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket || !PeerIsRoot(socket.get()) || calls_.size() >= kMaxCalls) return;
  CallThread& call = calls_.emplace_back();
  call.thread = std::thread([this, &call, connection = std::move(socket)] {
    ServeCall(connection);
    call.ended = true;
  });
}

void Supervisor::JoinEnded() {
  calls_.remove_if([](CallThread& call) {
    if (!call.ended) return false;
    call.thread.join();
    return true;
  });
}

// I/O of volumes that are still attached fails from here on; so nothing can be waiting when the threads are
// joined.
void Supervisor::LetGo() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    worker_.Kill();
    for (auto& [name, volume] : volumes_) {
      if (volume->lost.empty()) volume->lost = "the data path ends";
      if (!volume->busy) volume->fuse.device.Reset();
    }
  }
  for (CallThread& call : calls_) call.thread.join();
  calls_.clear();
}

}  // namespace lunkeeper
