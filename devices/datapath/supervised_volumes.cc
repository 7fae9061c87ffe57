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

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace lunkeeper {
namespace {

absl::Status EndingError() { return absl::UnavailableError("the data path is being stopped"); }

// What a failed login means to the caller of Attach (initiator.h has the contract).
absl::StatusCode CodeOf(LunFailure failure) {
  switch (failure) {
    case LunFailure::kOtherLun:
    case LunFailure::kHostRestarted:
    case LunFailure::kNoReset:
      return absl::StatusCode::kFailedPrecondition;
    case LunFailure::kAway:
      return absl::StatusCode::kDeadlineExceeded;
    case LunFailure::kBadPortal:
      return absl::StatusCode::kInvalidArgument;
    case LunFailure::kNone:
    case LunFailure::kRefused:
    case LunFailure::kTold:
      break;
  }
  return absl::StatusCode::kPermissionDenied;
}

}  // namespace

SupervisedVolumes::SupervisedVolumes(const WorkerOptions& options, SharedMemory memory, int answers,
                                     std::string tag_prefix, std::string upgrade_binary)
    : tag_prefix_(std::move(tag_prefix)),
      upgrade_binary_(std::move(upgrade_binary)),
      memory_(std::move(memory)),
      worker_(options, &memory_, answers),
      table_(memory_.state()),
      orphans_(tag_prefix_) {}

int SupervisedVolumes::KeepWorkerRunning() {
  absl::MutexLock lock(&mutex_);
  if (worker_.running() || WorkerProcess::Clock::now() < worker_.next_start()) return worker_.pidfd();
  // Each volume is opened again by the new worker; until then it is shown as reconnecting.
  for (const auto& [id, volume] : table_.volumes()) SlotOf(*volume).open = false;
  const absl::Status started = worker_.Start();
  if (!started.ok()) {
    LogError("datapath", "no worker", {{"error", started.ToString()}});
    return -1;
  }
  for (const auto& [id, volume] : table_.volumes()) {
    if (volume->fuse.device && !volume->lost()) GiveToWorker(*volume);
  }
  return worker_.pidfd();
}

// The descriptor is duplicated by the message. The supervisor keeps its own, so that the connection and the
// requests in it survive the worker.
void SupervisedVolumes::GiveToWorker(SupervisedVolume& volume) {
  datapath::WorkerCommand command;
  command.set_slot(volume.slot);
  *command.mutable_add()->mutable_volume() = volume.options;
  command.mutable_add()->set_resend(volume.service == SupervisedVolume::Service::kGiven);
  volume.service = SupervisedVolume::Service::kGiven;
  worker_.SendCommand(command, {volume.fuse.device.get()});
  if (volume.told_to_fail) TellWorkerToFail(volume, volume.reason);
}

void SupervisedVolumes::TellWorkerToFail(const SupervisedVolume& volume, const std::string& reason) {
  datapath::WorkerCommand fail;
  fail.set_slot(volume.slot);
  fail.mutable_fail()->set_reason(reason);
  worker_.SendCommand(fail);
}

// The reason of a fence outlives this: it is what people have to read first.
void SupervisedVolumes::LoseVolume(SupervisedVolume& volume, const char* reason) {
  volume.service = SupervisedVolume::Service::kLost;
  if (!volume.told_to_fail) volume.reason = reason;
}

void SupervisedVolumes::CollectDeadWorker() {
  absl::MutexLock lock(&mutex_);
  worker_.CollectDead();
  for (const auto& [id, volume] : table_.volumes()) {
    if (volume->service != SupervisedVolume::Service::kGiven || volume->fuse.can_resend) continue;
    // What the worker had read is lost to its successor: end all I/O rather than let it hang.
    LoseVolume(*volume,
               "the data path's worker died, and kernels before 6.9 cannot hand its requests on: unstage and "
               "stage again");
    volume->fuse.device.Reset();
  }
}

// Its death is seen by its pidfd like any other, and it is replaced.
void SupervisedVolumes::KillHungWorker() {
  absl::MutexLock lock(&mutex_);
  if (!worker_.IsHung()) return;
  LogError("datapath", "worker is hung and is killed", {});
  worker_.KillWorker();
}

// absl evaluates the conditions of waiters whenever the lock is released, so taking it is enough.
void SupervisedVolumes::WakeWaiters() { absl::MutexLock lock(&mutex_); }

// Volumes stay attached and are served: pods are using them. Each detach brings the end nearer.
size_t SupervisedVolumes::StartDraining() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  return table_.volumes().size();
}

bool SupervisedVolumes::IsDrained() {
  absl::MutexLock lock(&mutex_);
  return draining_ && table_.volumes().empty();
}

// I/O of volumes that are still attached fails from here on; so no call can be waiting for it, and all calls
// can be joined. A volume in a call is left alone: that call has it, and its descriptor closes with the
// process.
void SupervisedVolumes::EndAll() {
  absl::MutexLock lock(&mutex_);
  ending_ = true;
  worker_.KillWorker();
  for (const auto& [id, volume] : table_.volumes()) {
    if (!volume->lost()) LoseVolume(*volume, "the data path ends");
    if (!volume->in_call) volume->fuse.device.Reset();
  }
}

absl::StatusOr<SupervisedVolume*> SupervisedVolumes::BeginCall(const VolumeId& id, absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  const auto free = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ending_ || !table_.IsInCall(id); };
  if (!mutex_.AwaitWithDeadline(absl::Condition(&free), deadline)) {
    return absl::DeadlineExceededError(
        absl::StrCat("volume ", id.value(), ": another call is working on it"));
  }
  if (ending_) return EndingError();
  return table_.BeginCall(id);
}

void SupervisedVolumes::EndCall(SupervisedVolume& volume) {
  absl::MutexLock lock(&mutex_);
  VolumeTable::EndCall(volume);
}

absl::StatusOr<SupervisedVolume*> SupervisedVolumes::InsertVolume(const datapath::Attach& options) {
  absl::MutexLock lock(&mutex_);
  if (table_.Find(VolumeId(options.volume())) != nullptr) {
    return absl::AbortedError(absl::StrCat("volume ", options.volume(), ": another call is attaching it"));
  }
  if (draining_) return EndingError();
  return table_.AddVolume(options);
}

void SupervisedVolumes::EraseVolume(const SupervisedVolume& volume) {
  absl::MutexLock lock(&mutex_);
  table_.Erase(VolumeId(volume.id));  // a copy: the id in the volume goes with it
}

void SupervisedVolumes::ServeMount(SupervisedVolume& volume, FuseMount fuse) {
  absl::MutexLock lock(&mutex_);
  volume.fuse = std::move(fuse);
  GiveToWorker(volume);
}

absl::Status SupervisedVolumes::AwaitLogin(const SupervisedVolume& volume, absl::Time deadline) {
  const VolumeSlot& slot = SlotOf(volume);
  const std::string what =
      absl::StrCat("volume ", volume.id.value(), ": login to ", volume.options.connection().portal(),
                   ", target ", volume.options.connection().target());
  absl::MutexLock lock(&mutex_);
  const auto settled = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ending_ || volume.lost() || slot.open; };
  if (!mutex_.AwaitWithDeadline(absl::Condition(&settled), deadline)) {
    return absl::DeadlineExceededError(absl::StrCat(what, ": no answer in time: ", TroubleOf(volume)));
  }
  if (ending_) return EndingError();
  if (volume.lost()) return absl::UnavailableError(absl::StrCat(what, ": ", volume.reason));
  if (slot.lun.health != LunHealth::kFailed) return absl::OkStatus();
  return absl::Status(CodeOf(slot.lun.failure), absl::StrCat(what, ": ", slot.lun.reason.Load()));
}

void SupervisedVolumes::KeepLoop(SupervisedVolume& volume, LoopDevice loop) {
  absl::MutexLock lock(&mutex_);
  volume.loop = std::move(loop);
}

// The health in the shared memory is the last worker's until the next one has opened the volume, so it counts
// only together with `open`.
TargetCondition SupervisedVolumes::ConditionOf(const SupervisedVolume& volume) const {
  const VolumeSlot& slot = SlotOf(volume);
  if (volume.lost() || volume.told_to_fail || slot.lun.health == LunHealth::kFailed) {
    return TargetCondition::kFailed;
  }
  return slot.open && slot.lun.health == LunHealth::kHealthy ? TargetCondition::kHealthy
                                                             : TargetCondition::kAway;
}

TargetCondition SupervisedVolumes::AwaitTarget(const SupervisedVolume& volume, absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  const auto settled = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return ending_ || ConditionOf(volume) != TargetCondition::kAway;
  };
  mutex_.AwaitWithDeadline(absl::Condition(&settled), deadline);
  return ConditionOf(volume);
}

// Writes that were answered with an error are not counted: their writers know.
void SupervisedVolumes::LogLostData(const SupervisedVolume& volume, std::optional<uint64_t> cached_bytes) {
  absl::MutexLock lock(&mutex_);
  const datapath::Device device = BuildDevice(volume);
  LogWarn("datapath", "detached without writing back, since the volume has failed for good",
          {{"volume", volume.id.value()},
           {"reason", device.reason()},
           {"lost_bytes", cached_bytes ? absl::StrCat(*cached_bytes) : "unknown"},
           {"unflushed_writes", absl::StrCat(SlotOf(volume).lun.unflushed())},
           {"errors", absl::StrCat(device.errors())}});
}

LoopDevice SupervisedVolumes::TakeLoop(SupervisedVolume& volume) {
  absl::MutexLock lock(&mutex_);
  if (SlotOf(volume).lun.health != LunHealth::kHealthy) TellWorkerToFail(volume, "detached");
  return std::move(volume.loop);  // its number stays: until the device has gone, it is no orphan
}

// The last copies of its descriptors, where the worker has closed its own: the FUSE connection ends here.
void SupervisedVolumes::CloseMount(SupervisedVolume& volume) {
  absl::MutexLock lock(&mutex_);
  volume.fuse = FuseMount{};
}

absl::StatusOr<int> SupervisedVolumes::AskWorker(const SupervisedVolume& volume,
                                                 datapath::WorkerCommand command, absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  // Tags are never used twice, so an answer to a command that was given up is not taken for another's.
  VolumeSlot& slot = SlotOf(volume);
  while (true) {
    const uint64_t tag = next_tag_++;
    const uint64_t generation = worker_.generation();
    command.set_slot(volume.slot);
    command.set_tag(tag);
    worker_.SendCommand(command);
    const auto answered = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return ending_ || slot.answered == tag || worker_.generation() != generation || volume.lost();
    };
    if (!mutex_.AwaitWithDeadline(absl::Condition(&answered), deadline)) {
      return absl::DeadlineExceededError(
          absl::StrCat("volume ", volume.id.value(), ": the target or the worker does not answer"));
    }
    if (slot.answered == tag) return slot.answer.load();
    if (ending_ || volume.lost()) return EndingError();
  }
}

// Waits for no other call: one that works on the volume must not keep it alive.
void SupervisedVolumes::FailVolume(const VolumeId& id, const std::string& target, const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  SupervisedVolume* volume = table_.Find(id);
  if (volume == nullptr || volume->options.connection().target() != target || volume->told_to_fail) return;
  volume->told_to_fail = true;
  volume->reason = reason.empty() ? "told to fail" : reason;
  LogWarn("datapath", "failed for good", {{"volume", id.value()}, {"reason", volume->reason}});
  if (volume->service != SupervisedVolume::Service::kNotGiven) TellWorkerToFail(*volume, volume->reason);
}

absl::Status SupervisedVolumes::UpgradeWorker(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, volume] : table_.volumes()) {
    if (!volume->fuse.can_resend) {
      return absl::FailedPreconditionError(
          "volumes are attached, and kernels before 6.9 cannot hand their requests on");
    }
  }
  // A worker that cannot use this supervisor's shared memory ends before it is ready; the next one is then
  // this same program again (WorkerProcess::UpgradeTo), and the volumes have lost some milliseconds.
  worker_.UpgradeTo(upgrade_binary_);
  const uint64_t before = worker_.generation();
  worker_.KillWorker();
  const auto settled = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return ending_ || (worker_.generation() > before && (worker_.ready() || worker_.upgrade_failed()));
  };
  if (!mutex_.AwaitWithDeadline(absl::Condition(&settled), deadline)) {
    return absl::DeadlineExceededError("the new worker is not ready");
  }
  if (!worker_.upgrade_failed()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      upgrade_binary_,
      " does not go together with the running data path, which carries on: detach all and restart it"));
}

absl::Status SupervisedVolumes::StopUnlessUsed() {
  absl::MutexLock lock(&mutex_);
  if (!table_.volumes().empty()) {
    return absl::FailedPreconditionError(absl::StrCat("the data path has volumes attached (",
                                                      table_.volumes().size(), "): detach them first"));
  }
  draining_ = true;
  return absl::OkStatus();
}

datapath::Device SupervisedVolumes::DescribeVolume(const SupervisedVolume& volume) {
  absl::MutexLock lock(&mutex_);
  return BuildDevice(volume);
}

std::vector<datapath::Device> SupervisedVolumes::ListDevices(const VolumeId& id) {
  std::vector<datapath::Device> devices;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [each, volume] : table_.volumes()) {
      if (volume->loop.fd && (id.empty() || id == each)) devices.push_back(BuildDevice(*volume));
    }
  }
  if (!id.empty() && !devices.empty()) return devices;
  for (datapath::Device& orphan : FindOrphans(id)) devices.push_back(std::move(orphan));
  return devices;
}

std::vector<datapath::Device> SupervisedVolumes::FindOrphans(const VolumeId& id) {
  absl::MutexLock lock(&mutex_);
  return orphans_.FindOrphans(
      id.value(), [this](int number) ABSL_NO_THREAD_SAFETY_ANALYSIS { return table_.UsesLoop(number); });
}

// Workers that die one after the other explain more than what the last of them had to say of the LUN.
std::string SupervisedVolumes::TroubleOf(const SupervisedVolume& volume) const {
  return worker_.trouble().empty() ? SlotOf(volume).lun.reason.Load() : worker_.trouble();
}

datapath::Device SupervisedVolumes::BuildDevice(const SupervisedVolume& volume) const {
  const LunState& lun = SlotOf(volume).lun;
  datapath::Device device;
  device.set_volume(volume.options.volume());
  device.set_path(volume.loop.path());
  device.set_size_bytes(lun.size_bytes);
  device.set_read_only(volume.options.read_only());
  device.set_target(volume.options.connection().target());
  device.set_portal(volume.options.connection().portal());
  device.set_reads(lun.reads);
  device.set_writes(lun.writes);
  device.set_flushes(lun.flushes);
  device.set_read_bytes(lun.read_bytes);
  device.set_written_bytes(lun.written_bytes);
  device.set_errors(lun.errors);
  SetHealth(volume, device);
  return device;
}

// What is final comes first: a volume marked by FailVolume is failed, even while its worker has not heard
// yet.
void SupervisedVolumes::SetHealth(const SupervisedVolume& volume, datapath::Device& device) const {
  const LunState& lun = SlotOf(volume).lun;
  if (volume.told_to_fail || volume.lost()) {
    device.set_health(datapath::Device::FAILED);
    device.set_reason(volume.reason);
  } else if (lun.health == LunHealth::kFailed) {
    device.set_health(datapath::Device::FAILED);
    device.set_reason(lun.reason.Load());
  } else if (lun.health != LunHealth::kHealthy || !SlotOf(volume).open) {
    device.set_health(datapath::Device::RECONNECTING);
    device.set_reason(TroubleOf(volume));
  } else if (lun.stalled) {
    device.set_health(datapath::Device::RECONNECTING);
    device.set_reason("the target is silent");
  }
}

}  // namespace lunkeeper
