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
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/child.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/datapath/attachment_records.h"
#include "devices/datapath/control_socket.h"
#include "devices/datapath/datapath_lock.h"
#include "devices/datapath/duplicate_store.h"
#include "devices/datapath/duplicates.h"
#include "devices/datapath/locked_memory.h"
#include "devices/datapath/loop_device.h"
#include "devices/datapath/loop_tag.h"
#include "devices/datapath/succession.h"

namespace lunkeeper {
namespace {

// Each call has a thread, and may wait for minutes. Beyond this many, callers are asked to repeat theirs.
constexpr size_t kMaxCalls = 256;
constexpr auto kTick = std::chrono::seconds(1);
// How long to wait for events: with a worker, until the next tick; without one, or with one that is not yet
// known to be ready, until it may be.
constexpr int kWaitMs = 1000;
constexpr int kWaitWithoutWorkerMs = 20;
// A successor's first worker. Requests stand still meanwhile, and the predecessor waits to go on.
constexpr auto kWorkerStarts = std::chrono::seconds(5);

UniqueFd ListenForStopSignals() {
  const sigset_t set = BlockStopSignals();
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
  worker.hang_ticks_if_all_is_lost = std::max(worker.hang_ticks, worker.hang_ticks_if_all_is_lost);
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

// Those of a supervisor that was killed, if somebody keeps duplicates and this one can use them.
absl::StatusOr<VolumesState> RecoverVolumes(const std::vector<UniqueFd>& parcels) {
  absl::StatusOr<VolumesState> kept = ReadDuplicates(parcels);
  if (kept.ok()) {
    FAIL_POINT("duplicates.successor.asked");
    LogWarn("datapath", "goes on with the volumes of a data path that died",
            {{"volumes", std::to_string(kept->volumes.size())}});
    return kept;
  }
  if (!absl::IsNotFound(kept.status())) {
    LogError("datapath", "the volumes of a data path that died are lost",
             {{"error", std::string(kept.status().message())}});
    for (const UniqueFd& parcel : parcels) EmptyParcel(parcel.get());
  }
  ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Create());
  return VolumesState{std::move(memory), {}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Create(const DatapathOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(options.socket).parent_path(), error);
  AllowManyDescriptors();
  ASSIGN_OR_RETURN(UniqueFd lock, LockSocket(options.socket));
  ASSIGN_OR_RETURN(UniqueFd listener, ListenAt(options.socket));
  SweepLoops();
  ASSIGN_OR_RETURN(std::vector<UniqueFd> parcels, AskForDuplicates(options.socket));
  ASSIGN_OR_RETURN(VolumesState state, RecoverVolumes(parcels));
  std::unique_ptr<Supervisor> supervisor(
      new Supervisor(options, {std::move(lock), std::move(listener), std::move(state)}, UniqueFd()));
  supervisor->predecessors_parcels_ = std::move(parcels);
  return supervisor;
}

absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Succeed(const DatapathOptions& options) {
  AllowManyDescriptors();
  ASSIGN_OR_RETURN(TakenOver taken, TakeOver(options.socket));
  return std::unique_ptr<Supervisor>(
      new Supervisor(options, std::move(taken.inheritance), std::move(taken.predecessor)));
}

Supervisor::Supervisor(const DatapathOptions& options, Inheritance inheritance, UniqueFd predecessor)
    : socket_path_(options.socket),
      ready_file_(options.ready_file),
      lock_(std::move(inheritance.lock)),
      listener_(std::move(inheritance.listener)),
      answers_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      signals_(ListenForStopSignals()),
      volumes_(WorkerOptionsOf(options), std::move(inheritance.state), answers_.get(),
               LoopTagPrefix(options.socket), BinaryToUpgradeTo(options)),
      predecessor_side_(volumes_, lock_.get(), listener_.get()),
      control_calls_(volumes_, predecessor_side_, AttachmentRecords(options.socket), options.resend),
      predecessor_(std::move(predecessor)) {}

// Where nobody else serves at the socket.
Supervisor::~Supervisor() {
  if (!ready_file_.empty()) ::unlink(ready_file_.c_str());
  if (serving_ && !handed_over_) ::unlink(socket_path_.c_str());
}

absl::Status Supervisor::Run() {
  const auto start = std::chrono::steady_clock::now();
  auto next_tick = start;
  while (!MayEnd()) {
    if (!serving_ && (!predecessor_ || volumes_.IsWorkerReady())) BeginService();
    WaitForEvents();
    const auto now = std::chrono::steady_clock::now();
    if (!serving_ && now > start + kWorkerStarts) {
      return absl::DeadlineExceededError("its worker does not get ready: the data path before it serves on");
    }
    if (now < next_tick) continue;
    next_tick = now + kTick;
    RunTick();
  }
  handed_over_ = volumes_.hand_over() >= HandOverPhase::kGiven;
  EndEverything();
  return absl::OkStatus();
}

// The predecessor learns it first: it must not serve on once a call has changed a volume. The store even
// before that: what it has of the predecessor ends with that one.
void Supervisor::BeginService() {
  OfferDuplicates();
  if (predecessor_) {
    FAIL_POINT("handover.successor.started");
    ConfirmService(predecessor_.get());
    predecessor_.Reset();
  }
  serving_ = true;
  if (!ready_file_.empty()) std::ofstream(ready_file_) << "serving\n";
  LogInfo("datapath", "serving", {{"socket", socket_path_}});
}

// A store that has gone took all along; another one gets everything. What a dead supervisor had left there
// is taken out only now: killed before, this one leaves it to the next.
void Supervisor::OfferDuplicates() {
  if (duplicate_store_ && IsDuplicateStoreGone(duplicate_store_.get())) {
    duplicate_store_.Reset();
    volumes_.WithdrawDuplicates();
  }
  if (duplicate_store_ || volumes_.hand_over() != HandOverPhase::kNone) return;
  absl::StatusOr<UniqueFd> store = ConnectToDuplicateStore(socket_path_);
  if (!store.ok()) return;
  const absl::StatusOr<std::vector<int>> parcels = volumes_.OfferDuplicates();
  if (!parcels.ok() || !SendDuplicates(store->get(), *parcels).ok()) return volumes_.WithdrawDuplicates();
  FAIL_POINT("duplicates.store.given");
  duplicate_store_ = *std::move(store);
  for (const UniqueFd& parcel : std::exchange(predecessors_parcels_, {})) EmptyParcel(parcel.get());
}

void Supervisor::WaitForEvents() {
  const int worker = volumes_.KeepWorkerRunning();
  // A successor has the same listening socket: calls wait in it until one of the two serves.
  const bool accepts = serving_ && volumes_.hand_over() == HandOverPhase::kNone;
  pollfd waiting[] = {{accepts ? listener_.get() : -1, POLLIN, 0},
                      {answers_.get(), POLLIN, 0},
                      {signals_.get(), POLLIN, 0},
                      {worker, POLLIN, 0}};
  ::poll(waiting, 4, worker >= 0 && serving_ ? kWaitMs : kWaitWithoutWorkerMs);
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
  while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGINT) ++interrupts_;
  }
  stop_requested_ = true;
  const size_t attached = volumes_.RefuseNewVolumes();
  LogInfo("datapath",
          attached == 0
              ? "told to stop"
              : "told to stop, and serves on until its volumes are detached or a successor has them",
          {{"attached_volumes", std::to_string(attached)}});
}

void Supervisor::RunTick() {
  JoinEndedCalls();
  CollectLateChildren();
  if (serving_) OfferDuplicates();
  volumes_.RunTick();
}

void Supervisor::AcceptCall() {
  JoinEndedCalls();  // only calls under way count against the limit
  // PeerIsRoot: the socket's mode is not trusted alone (control_socket.cc).
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket || !PeerIsRoot(socket.get())) return;
  if (calls_.size() >= kMaxCalls) {
    const std::string why =
        absl::StrCat(kMaxCalls, " calls to the data path are under way: repeat this later");
    datapath::Request unread;  // would turn the response into a reset
    ReceiveMessage(socket.get(), absl::Now(), &unread).IgnoreError();
    return ControlCalls::SendError(socket.get(), absl::UnavailableError(why));
  }
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

bool Supervisor::MayEnd() {
  return interrupts_ > 1 || volumes_.IsDone() || volumes_.hand_over() == HandOverPhase::kDone;
}

// In this order: once all I/O fails and all waiting ends, no call can be stuck, and each can be joined.
void Supervisor::EndEverything() {
  volumes_.EndAll();
  for (CallThread& call : calls_) call.thread.join();
  calls_.clear();
}

}  // namespace lunkeeper
