// Commands go to the worker by its socket; its answers come back through the shared memory, so that a worker
// that dies in the middle of an answer leaves nothing half received. A step that waits for one sleeps on the
// lock's condition; the main thread is woken by the eventfd `answers` and passes that on (WakeWaiters).
//
// The order in which a worker may die is free, so each step is written against the worker's generation: a
// command without an answer is sent again to the next worker. All commands can be repeated.
//
// Killed here: nothing is recorded but in this process. The descriptors close, all I/O ends in errors, and
// the next supervisor finds the devices that are still open as orphans.

#include "devices/datapath/supervised_volumes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/datapath/device_report.h"

namespace lunkeeper {
namespace {

// How long a hand-over waits for calls to end, and again when it has urged them: others are held up as long.
constexpr absl::Duration kQuiet = absl::Seconds(2);

absl::Status EndingError() { return absl::UnavailableError("the data path is being stopped"); }

}  // namespace

SupervisedVolumes::SupervisedVolumes(const WorkerOptions& options, VolumesState state, int answers,
                                     std::string tag_prefix, std::string upgrade_binary)
    : tag_prefix_(std::move(tag_prefix)),
      upgrade_binary_(std::move(upgrade_binary)),
      memory_(std::move(state.memory)),
      worker_(options, &memory_, answers),
      table_(memory_.state(), std::move(state.volumes)),
      duplicates_(memory_),
      orphans_(tag_prefix_,
               [this](int number) ABSL_NO_THREAD_SAFETY_ANALYSIS { return table_.UsesLoop(number); }),
      next_tag_(state.next_tag) {}

int SupervisedVolumes::KeepWorkerRunning() {
  SteadyLock lock(&mutex_);
  const bool may_start = hand_over_ < HandOverPhase::kStopped;
  if (worker_.running() || !may_start || WorkerProcess::Clock::now() < worker_.next_start())
    return worker_.pidfd();
  // Each volume is opened again by the new worker; until then it is shown as reconnecting.
  for (const auto& [id, volume] : table_.volumes()) {
    SlotOf(*volume).open = false;
    SlotOf(*volume).work = SlotWork::kNone;
  }
  const absl::Status started = worker_.Start();
  if (!started.ok()) {
    LogError("datapath", "no worker", {{"error", started.ToString()}});
    return -1;
  }
  for (const auto& [id, volume] : table_.volumes()) {
    if (volume->fuse.device && !volume->lost()) worker_.GiveVolume(*volume);
  }
  return worker_.pidfd();
}

// The reason of a fence outlives this: it is what people have to read first.
void SupervisedVolumes::LoseVolume(SupervisedVolume& volume, const char* reason) {
  ++SlotOf(volume).attachment;  // voids what an older edition has of it
  volume.service = SupervisedVolume::Service::kLost;
  if (!volume.fail_requested) volume.reason = reason;
}

void SupervisedVolumes::CollectDeadWorker() {
  SteadyLock lock(&mutex_);
  worker_.CollectDead();
  SetCulpritAside();
  for (const auto& [id, volume] : table_.volumes()) {
    if (volume->service != SupervisedVolume::Service::kGiven || volume->fuse.can_resend) continue;
    // What the worker had read is lost to its successor: end all I/O rather than let it hang.
    LoseVolume(*volume,
               "the data path's worker died, and kernels before 6.9 cannot hand its requests on: unstage and "
               "stage again");
    volume->fuse.device.Reset();
  }
  UpdateDuplicates();
}

// No worker is given it again, and with the last copy of its descriptor all its I/O ends.
void SupervisedVolumes::SetCulpritAside() {
  SupervisedVolume* const volume = crashes_.CountCrash(table_, CrashHistory::Clock::now());
  if (volume == nullptr || volume->lost()) return;
  LoseVolume(*volume,
             "set aside: the data path's worker crashed or hung each time it served this volume. The data "
             "path's log has each; report them, then unstage and stage the volume to try again");
  volume->set_aside = true;
  LogError("datapath", "volume set aside, and the others go on",
           {{"volume", volume->id.value()}, {"reason", volume->reason}});
  volume->fuse.device.Reset();
}

void SupervisedVolumes::RunTick() {
  SteadyLock lock(&mutex_);
  duplicates_.Refresh(table_.volumes(), next_tag_);
  if (!worker_.IsHung(table_.CanAllResend())) return;
  LogError("datapath", "worker is hung and is killed", {});
  worker_.KillWorker();
}

// The conditions of waiters are evaluated whenever the lock is released, so taking it is enough.
void SupervisedVolumes::WakeWaiters() { SteadyLock lock(&mutex_); }

// Volumes stay attached and are served: pods are using them. Each detach brings the end nearer.
size_t SupervisedVolumes::RefuseNewVolumes() {
  SteadyLock lock(&mutex_);
  refuses_new_ = true;
  return table_.volumes().size();
}

bool SupervisedVolumes::IsDone() {
  SteadyLock lock(&mutex_);
  return refuses_new_ && table_.volumes().empty() && hand_over_ == HandOverPhase::kNone;
}

// I/O of volumes that are still attached fails from here on; so no call can be waiting for it, and all calls
// can be joined. A volume in a call keeps its descriptor, which closes with the process. What was given away
// is left alone: a successor has the same memory, and has told the store of these very attachments.
void SupervisedVolumes::EndAll() {
  SteadyLock lock(&mutex_);
  ending_ = true;
  worker_.KillWorker();
  duplicates_.Withdraw();
  for (const auto& [id, volume] : table_.volumes()) {
    if (hand_over_ < HandOverPhase::kGiven && !volume->lost()) LoseVolume(*volume, "the data path ends");
    if (!volume->in_call) volume->fuse.device.Reset();
  }
  hand_over_ = hand_over_ == HandOverPhase::kNone ? HandOverPhase::kEnded : HandOverPhase::kDone;
}

absl::StatusOr<UniqueFd> SupervisedVolumes::PrepareHandOver(int lock_file, int listener) {
  SteadyLock lock(&mutex_);
  if (ending_ || hand_over_ != HandOverPhase::kNone) return EndingError();
  if (!table_.CanAllResend())
    return absl::FailedPreconditionError(
        "volumes are attached, and kernels before 6.9 cannot hand their requests on: drain the node, then "
        "end the running data path");
  hand_over_ = HandOverPhase::kAsked;
  const auto quiet = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ending_ || !table_.IsAnyInCall(); };
  absl::StatusOr<UniqueFd> parcel = absl::UnavailableError("calls are under way that take long");
  if (!mutex_.AwaitUntil(absl::Condition(&quiet), SteadyDeadline(kQuiet))) hand_over_ = HandOverPhase::kUrged;
  if (mutex_.AwaitUntil(absl::Condition(&quiet), SteadyDeadline(kQuiet)))
    parcel = PackParcel(memory_, table_.volumes(), next_tag_, lock_file, listener);
  if (!parcel.ok()) hand_over_ = HandOverPhase::kNone;
  return parcel;
}

// A worker inside a system call that no signal interrupts lives on; then there is no hand-over.
absl::Status SupervisedVolumes::StopWorkerForGood(absl::Duration timeout) {
  SteadyLock lock(&mutex_);
  hand_over_ = HandOverPhase::kStopped;
  worker_.KillWorker();
  const auto dead = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ending_ || !worker_.running(); };
  if (mutex_.AwaitUntil(absl::Condition(&dead), SteadyDeadline(timeout))) return absl::OkStatus();
  return absl::DeadlineExceededError("the worker does not die");
}

void SupervisedVolumes::SetHandOver(HandOverPhase phase) {
  SteadyLock lock(&mutex_);
  if (!ending_) hand_over_ = phase;
}

bool SupervisedVolumes::IsWorkerReady() {
  SteadyLock lock(&mutex_);
  return worker_.ready();
}

HandOverPhase SupervisedVolumes::hand_over() {
  SteadyLock lock(&mutex_);
  return hand_over_;
}

absl::Status SupervisedVolumes::AwaitNoHandOver() {
  const auto none = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return ending_ || hand_over_ == HandOverPhase::kNone;
  };
  mutex_.Await(absl::Condition(&none));
  return ending_ ? EndingError() : absl::OkStatus();
}

absl::StatusOr<SupervisedVolume*> SupervisedVolumes::BeginCall(const VolumeId& id, absl::Time deadline) {
  SteadyLock lock(&mutex_);
  const auto free = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return ending_ || (hand_over_ == HandOverPhase::kNone && !table_.IsInCall(id));
  };
  if (!mutex_.AwaitUntil(absl::Condition(&free), SteadyDeadline(deadline)))
    return absl::DeadlineExceededError(
        absl::StrCat("volume ", id.value(), ": another call is working on it"));
  if (ending_) return EndingError();
  return table_.BeginCall(id);
}

void SupervisedVolumes::EndCall(SupervisedVolume& volume) {
  SteadyLock lock(&mutex_);
  VolumeTable::EndCall(volume);
}

absl::StatusOr<SupervisedVolume*> SupervisedVolumes::InsertVolume(const datapath::Attach& options) {
  SteadyLock lock(&mutex_);
  RETURN_IF_ERROR(AwaitNoHandOver());
  if (table_.Find(VolumeId(options.volume())) != nullptr)
    return absl::AbortedError(absl::StrCat("volume ", options.volume(), ": another call is attaching it"));
  if (refuses_new_) return EndingError();
  return table_.AddVolume(options);
}

void SupervisedVolumes::EraseVolume(const SupervisedVolume& volume) {
  SteadyLock lock(&mutex_);
  table_.Erase(VolumeId(volume.id));  // a copy: the id in the volume goes with it
  UpdateDuplicates();
}

void SupervisedVolumes::ServeMount(SupervisedVolume& volume, FuseMount fuse) {
  SteadyLock lock(&mutex_);
  volume.fuse = std::move(fuse);
  worker_.GiveVolume(volume);
}

absl::Status SupervisedVolumes::AwaitLogin(const SupervisedVolume& volume, absl::Time deadline) {
  const VolumeSlot& slot = SlotOf(volume);
  const std::string what =
      absl::StrCat("volume ", volume.id.value(), ": login to ", volume.options.connection().portal(),
                   ", target ", volume.options.connection().target());
  SteadyLock lock(&mutex_);
  // A login may take minutes. A hand-over does not wait so long: the client repeats the call.
  const auto settled = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return ending_ || hand_over_ == HandOverPhase::kUrged || volume.lost() || slot.open;
  };
  if (!mutex_.AwaitUntil(absl::Condition(&settled), SteadyDeadline(deadline)))
    return absl::DeadlineExceededError(
        absl::StrCat(what, ": no answer in time: ", TroubleOf(slot, worker_.trouble())));
  if (ending_) return EndingError();
  if (volume.lost()) return absl::UnavailableError(absl::StrCat(what, ": ", volume.reason));
  if (!slot.open) return absl::UnavailableError(absl::StrCat(what, ": the data path is being replaced"));
  if (slot.lun.health != LunHealth::kFailed) return absl::OkStatus();
  return absl::Status(CodeOf(slot.lun.failure), absl::StrCat(what, ": ", slot.lun.reason.Load()));
}

void SupervisedVolumes::KeepLoop(SupervisedVolume& volume, LoopDevice loop) {
  SteadyLock lock(&mutex_);
  volume.loop = std::move(loop);
  UpdateDuplicates();
}

void SupervisedVolumes::ChangeKept(const std::function<void()>& change) {
  SteadyLock lock(&mutex_);
  change();
  UpdateDuplicates();
}

absl::StatusOr<std::vector<int>> SupervisedVolumes::OfferDuplicates() {
  SteadyLock lock(&mutex_);
  return duplicates_.Offer(table_.volumes(), next_tag_);
}

void SupervisedVolumes::WithdrawDuplicates() {
  SteadyLock lock(&mutex_);
  duplicates_.Withdraw();
}

// The health in the shared memory is the last worker's until the next one has opened the volume, so it counts
// only together with `open`.
TargetCondition SupervisedVolumes::ConditionOf(const SupervisedVolume& volume) const {
  const VolumeSlot& slot = SlotOf(volume);
  if (volume.lost() || volume.fail_requested || slot.lun.health == LunHealth::kFailed)
    return TargetCondition::kFailed;
  return slot.open && slot.lun.health == LunHealth::kHealthy ? TargetCondition::kHealthy
                                                             : TargetCondition::kAway;
}

TargetCondition SupervisedVolumes::AwaitTarget(const SupervisedVolume& volume, absl::Time deadline) {
  SteadyLock lock(&mutex_);
  const auto settled = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return ending_ || ConditionOf(volume) != TargetCondition::kAway;
  };
  mutex_.AwaitUntil(absl::Condition(&settled), SteadyDeadline(deadline));
  return ConditionOf(volume);
}

LoopDevice SupervisedVolumes::TakeLoop(SupervisedVolume& volume) {
  SteadyLock lock(&mutex_);
  if (SlotOf(volume).lun.health != LunHealth::kHealthy) worker_.SendFail(volume, "detached");
  LoopDevice loop = std::move(volume.loop);  // its number stays: until the device has gone, it is no orphan
  ++SlotOf(volume).attachment;
  UpdateDuplicates();  // before the removal: it ends with the last copy of the descriptor
  return loop;
}

void SupervisedVolumes::CloseMount(SupervisedVolume& volume) {
  SteadyLock lock(&mutex_);
  volume.fuse = FuseMount{};
}

absl::StatusOr<int> SupervisedVolumes::AskWorker(const SupervisedVolume& volume,
                                                 datapath::WorkerCommand command, absl::Time deadline) {
  SteadyLock lock(&mutex_);
  // Tags are never used twice, so an answer to a command that was given up is not taken for another's.
  VolumeSlot& slot = SlotOf(volume);
  const SteadyDeadline end(deadline);
  while (true) {
    const uint64_t tag = next_tag_++;
    const uint64_t generation = worker_.generation();
    command.set_slot(volume.slot);
    command.set_tag(tag);
    worker_.SendCommand(command);
    const auto answered = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return ending_ || slot.answered == tag || worker_.generation() != generation || volume.lost();
    };
    if (!mutex_.AwaitUntil(absl::Condition(&answered), end))
      return absl::DeadlineExceededError(
          absl::StrCat("volume ", volume.id.value(), ": the target or the worker does not answer"));
    if (slot.answered == tag) return slot.answer.load();
    if (ending_ || volume.lost()) return EndingError();
  }
}

absl::Status SupervisedVolumes::FailVolume(const VolumeId& id, const std::string& target,
                                           const std::string& reason) {
  SteadyLock lock(&mutex_);
  RETURN_IF_ERROR(AwaitNoHandOver());
  SupervisedVolume* volume = table_.Find(id);
  if (volume == nullptr || volume->options.connection().target() != target || volume->fail_requested)
    return absl::OkStatus();
  volume->fail_requested = true;
  ++SlotOf(*volume).attachment;
  volume->reason = reason.empty() ? "told to fail" : reason;
  LogWarn("datapath", "failed for good", {{"volume", id.value()}, {"reason", volume->reason}});
  UpdateDuplicates();
  if (volume->service != SupervisedVolume::Service::kNotGiven) worker_.SendFail(*volume, volume->reason);
  return absl::OkStatus();
}

// In shared memory: this worker sees them at once, and so does each later one.
void SupervisedVolumes::SetLimits(const VolumeId& id, const VolumeLimits& limits) {
  SteadyLock lock(&mutex_);
  table_.SetLimits(id, limits);
}

absl::Status SupervisedVolumes::UpgradeWorker(absl::Time deadline) {
  SteadyLock lock(&mutex_);
  RETURN_IF_ERROR(AwaitNoHandOver());
  if (!table_.CanAllResend())
    return absl::FailedPreconditionError(
        "volumes are attached, and kernels before 6.9 cannot hand their requests on");
  // A worker that cannot use this supervisor's shared memory ends before it is ready; the next one is then
  // this same program again (WorkerProcess::UpgradeTo), and the volumes have lost some milliseconds.
  worker_.UpgradeTo(upgrade_binary_);
  const uint64_t before = worker_.generation();
  worker_.KillWorker();
  const auto settled = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return ending_ || (worker_.generation() > before && (worker_.ready() || worker_.upgrade_failed()));
  };
  if (!mutex_.AwaitUntil(absl::Condition(&settled), SteadyDeadline(deadline)))
    return absl::DeadlineExceededError("the new worker is not ready");
  if (!worker_.upgrade_failed()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      upgrade_binary_,
      " does not go together with the running data path, which carries on: detach all and restart it"));
}

absl::Status SupervisedVolumes::StopUnlessUsed() {
  SteadyLock lock(&mutex_);
  if (!table_.volumes().empty())
    return absl::FailedPreconditionError(absl::StrCat("the data path has volumes attached (",
                                                      table_.volumes().size(), "): detach them first"));
  refuses_new_ = true;
  return absl::OkStatus();
}

datapath::Device SupervisedVolumes::DescribeVolume(const SupervisedVolume& volume) {
  SteadyLock lock(&mutex_);
  return BuildDevice(volume, SlotOf(volume), worker_.trouble());
}

std::vector<datapath::Device> SupervisedVolumes::ListDevices(const VolumeId& id, bool statistics) {
  std::vector<datapath::Device> devices;
  {
    SteadyLock lock(&mutex_);
    for (const auto& [each, volume] : table_.volumes()) {
      if (volume->loop.fd && (id.empty() || id == each))
        devices.push_back(BuildDevice(*volume, SlotOf(*volume), worker_.trouble(), statistics));
    }
  }
  if (!id.empty() && !devices.empty()) return devices;
  for (datapath::Device& orphan : FindOrphans(id)) devices.push_back(std::move(orphan));
  return devices;
}

std::vector<datapath::Device> SupervisedVolumes::FindOrphans(const VolumeId& id) {
  SteadyLock lock(&mutex_);
  return orphans_.FindOrphans(
      id.value(), [this](int number) ABSL_NO_THREAD_SAFETY_ANALYSIS { return table_.UsesLoop(number); });
}

}  // namespace lunkeeper
