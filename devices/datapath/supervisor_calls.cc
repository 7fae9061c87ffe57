// The calls of the supervisor's clients.

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/datapath/control_socket.h"
#include "devices/datapath/supervisor.h"

namespace lunkeeper {
namespace {

constexpr size_t kDevicesInOneMessage = 64;
constexpr absl::Duration kRequestTimeout = absl::Seconds(5);
constexpr absl::Duration kLongestCall = absl::Minutes(10);
// How long a detach waits for a target that is away, for the sake of what is still cached.
constexpr absl::Duration kDetachTimeout = absl::Seconds(5);
constexpr absl::Duration kUndoTimeout = absl::Seconds(15);
constexpr absl::Duration kLingers = absl::Seconds(2), kOrphanLook = absl::Milliseconds(20);

absl::Status CheckAttach(const datapath::Attach& request) {
  if (request.volume().empty()) return absl::InvalidArgumentError("attach: no volume named");
  if (request.connection().target().empty() || request.connection().portal().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("volume ", request.volume(), ": no portal or target to log in to"));
  }
  return absl::OkStatus();
}

absl::Status Ending() { return absl::UnavailableError("the data path is being stopped"); }

}  // namespace

void Supervisor::ServeCall(const UniqueFd& socket) {
  datapath::Request request;
  const absl::Status received = ReceiveMessage(socket.get(), absl::Now() + kRequestTimeout, &request);
  if (!received.ok()) return Reply(socket.get(), received);
  Reply(socket.get(), Serve(request));
}

void Supervisor::Reply(int socket, const absl::StatusOr<std::vector<datapath::Device>>& result) {
  datapath::Response response;
  if (!result.ok()) {
    response.set_code(static_cast<int>(result.status().code()));
    response.set_message(std::string(result.status().message()));
    SendMessage(socket, response).IgnoreError();  // the caller has gone: nobody to tell
    return;
  }
  size_t sent = 0;
  do {
    response.Clear();
    for (; sent < result->size() && response.devices_size() < static_cast<int>(kDevicesInOneMessage);
         ++sent) {
      *response.add_devices() = (*result)[sent];
    }
    response.set_more(sent < result->size());
    if (!SendMessage(socket, response).ok()) return;
  } while (response.more());
}

absl::StatusOr<std::vector<datapath::Device>> Supervisor::Serve(const datapath::Request& request) {
  using Devices = std::vector<datapath::Device>;
  const absl::Time deadline = absl::Now() + std::min(absl::Milliseconds(request.timeout_ms()), kLongestCall);
  switch (request.call_case()) {
    case datapath::Request::kAttach: {
      ASSIGN_OR_RETURN(datapath::Device device, Attach(request.attach(), deadline));
      return Devices{std::move(device)};
    }
    case datapath::Request::kDetach:
      RETURN_IF_ERROR(Detach(request.detach().volume(), deadline));
      return Devices{};
    case datapath::Request::kResize: {
      ASSIGN_OR_RETURN(datapath::Device device, Resize(request.resize().volume(), deadline));
      return Devices{std::move(device)};
    }
    case datapath::Request::kList:
      return List("");
    case datapath::Request::kFind:
      if (request.find().volume().empty()) return absl::InvalidArgumentError("find: no volume named");
      return List(request.find().volume());
    case datapath::Request::kUpgrade:
      RETURN_IF_ERROR(Upgrade(deadline));
      return Devices{};
    case datapath::Request::kStop:
      RETURN_IF_ERROR(Stop());
      return Devices{};
    case datapath::Request::kFail:
      if (request.fail().volume().empty()) return absl::InvalidArgumentError("fail: no volume named");
      Fail(request.fail());
      return Devices{};
    case datapath::Request::CALL_NOT_SET:
      break;
  }
  return absl::UnimplementedError("the data path does not know this call: upgrade it");
}

absl::StatusOr<Supervisor::Volume*> Supervisor::Claim(const std::string& name, absl::Time deadline) {
  const auto free = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto volume = volumes_.find(name);
    return ending_ || volume == volumes_.end() || !volume->second->busy;
  };
  if (!mutex_.AwaitWithDeadline(absl::Condition(&free), deadline)) {
    return absl::DeadlineExceededError(absl::StrCat("volume ", name, ": another call is working on it"));
  }
  if (ending_) return Ending();
  const auto volume = volumes_.find(name);
  if (volume == volumes_.end()) return nullptr;
  volume->second->busy = true;
  return volume->second.get();
}

bool Supervisor::IsTaken(uint32_t slot) const {
  for (const auto& [name, volume] : volumes_) {
    if (volume->slot == slot) return true;
  }
  return false;
}

bool Supervisor::IsOurs(int loop_number) const {
  for (const auto& [name, volume] : volumes_) {
    if (volume->loop.number == loop_number) return true;
  }
  return false;
}

absl::StatusOr<Supervisor::Volume*> Supervisor::Insert(const datapath::Attach& options) {
  if (draining_) return Ending();
  if (volumes_.size() >= kMaxVolumes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the data path has ", kMaxVolumes, " volumes, and no room for more"));
  }
  while (IsTaken(next_slot_)) next_slot_ = (next_slot_ + 1) % kMaxVolumes;
  auto volume = std::make_unique<Volume>();
  volume->options = options;
  volume->slot = next_slot_;
  std::memset(static_cast<void*>(&SlotOf(*volume)), 0, sizeof(VolumeSlot));
  return (volumes_[options.volume()] = std::move(volume)).get();
}

absl::StatusOr<datapath::Device> Supervisor::Attach(const datapath::Attach& request, absl::Time deadline) {
  RETURN_IF_ERROR(CheckAttach(request));
  std::vector<datapath::Device> orphans;
  AddOrphans(request.volume(), &orphans);
  Volume* volume = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(volume, Claim(request.volume(), deadline));
    if (volume != nullptr && volume->loop.fd) {
      volume->busy = false;
      const std::string& target = volume->options.connection().target();
      if (target == request.connection().target()) return Describe(*volume);
      return absl::FailedPreconditionError(absl::StrCat(
          "volume ", request.volume(), " is attached from target ", target, ": detach it first"));
    }
    if (volume == nullptr && !orphans.empty()) {
      return absl::FailedPreconditionError(absl::StrCat("volume ", request.volume(), ": ", orphans[0].path(),
                                                        " is left of it and in use: ", orphans[0].reason()));
    }
  }
  if (volume != nullptr) RETURN_IF_ERROR(TakeDown(*volume, deadline));  // a half-done attach or detach
  {
    absl::MutexLock lock(&mutex_);
    if (volumes_.count(request.volume()) != 0) {
      return absl::AbortedError(absl::StrCat("volume ", request.volume(), ": another call is attaching it"));
    }
    ASSIGN_OR_RETURN(volume, Insert(request));
  }
  const absl::Status made = SetUp(*volume, deadline);
  if (!made.ok()) {
    LogWarn("datapath", "attach failed", {{"volume", request.volume()}, {"error", made.ToString()}});
    TakeDown(*volume, absl::Now() + kUndoTimeout).IgnoreError();  // what is left goes with the next detach
    return made;
  }
  absl::MutexLock lock(&mutex_);
  volume->busy = false;
  LogInfo("datapath", "attached", {{"volume", request.volume()}, {"device", volume->loop.path()}});
  return Describe(*volume);
}

absl::Status Supervisor::SetUp(Volume& volume, absl::Time deadline) {
  FAIL_POINT("datapath.attach.recorded");
  ASSIGN_OR_RETURN(FuseMount fuse, MakeFuseMount());
  fuse.can_resend = fuse.can_resend && options_.resend;
  FAIL_POINT("datapath.attach.fuse");
  {
    absl::MutexLock lock(&mutex_);
    volume.fuse = std::move(fuse);
    GiveToWorker(volume);
  }
  FAIL_POINT("datapath.attach.given");
  RETURN_IF_ERROR(WaitForLogin(volume, deadline));
  FAIL_POINT("datapath.attach.login");
  const LoopOptions options = {.tag = LoopTag(tag_prefix_, volume.options.volume()),
                               .block_size = SlotOf(volume).lun.block_size,
                               .read_only = volume.options.read_only()};
  ASSIGN_OR_RETURN(LoopDevice loop, MakeLoop(volume.fuse.root.get(), options, deadline));
  FAIL_POINT("datapath.attach.loop");
  absl::MutexLock lock(&mutex_);
  volume.loop = std::move(loop);
  return absl::OkStatus();
}

absl::Status Supervisor::WaitForLogin(Volume& volume, absl::Time deadline) {
  const VolumeSlot& slot = SlotOf(volume);
  const std::string what =
      absl::StrCat("volume ", volume.options.volume(), ": login to ", volume.options.connection().portal(),
                   ", target ", volume.options.connection().target());
  absl::MutexLock lock(&mutex_);
  const auto settled = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return ending_ || !volume.lost.empty() || slot.open;
  };
  if (!mutex_.AwaitWithDeadline(absl::Condition(&settled), deadline)) {
    const std::string reason = worker_.trouble().empty() ? slot.lun.reason.Get() : worker_.trouble();
    return absl::DeadlineExceededError(absl::StrCat(what, ": no answer in time: ", reason));
  }
  if (ending_) return Ending();
  if (!volume.lost.empty()) return absl::UnavailableError(absl::StrCat(what, ": ", volume.lost));
  if (slot.lun.health != LunHealth::kFailed) return absl::OkStatus();
  const std::string reason = slot.lun.reason.Get();
  const bool another_lun =
      reason.rfind("the LUN", 0) == 0;  // its serial or size; anything else is a refused login
  return absl::Status(
      another_lun ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kPermissionDenied,
      absl::StrCat(what, ": ", reason));
}

// The kernel takes a device without a supervisor away at its last close, which may come a moment after an
// unmount.
absl::Status Supervisor::AwaitNoOrphan(const std::string& name, absl::Time deadline) {
  for (const absl::Time end = std::min(deadline, absl::Now() + kLingers);; absl::SleepFor(kOrphanLook)) {
    std::vector<datapath::Device> orphans;
    AddOrphans(name, &orphans);
    if (orphans.empty()) return absl::OkStatus();
    if (absl::Now() >= end)
      return absl::FailedPreconditionError(absl::StrCat("volume ", name, ": ", orphans[0].path(),
                                                        " is still open (mounted, or held by a process)"));
  }
}

absl::Status Supervisor::Detach(const std::string& name, absl::Time deadline) {
  Volume* volume = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(volume, Claim(name, deadline));
  }
  if (volume == nullptr) return AwaitNoOrphan(name, deadline);
  const absl::Status down = TakeDown(*volume, deadline);
  if (down.ok()) LogInfo("datapath", "detached", {{"volume", name}});
  return down;
}

// Takes away what there is of a claimed volume, and the volume; or fails, and lets it go with what is left.
absl::Status Supervisor::TakeDown(Volume& volume, absl::Time deadline) {
  const absl::Status withdrawn = Withdraw(volume, deadline);
  absl::MutexLock lock(&mutex_);
  volume.busy = false;
  if (withdrawn.ok()) volumes_.erase(std::string(volume.options.volume()));
  return withdrawn;
}

absl::Status Supervisor::Withdraw(Volume& volume, absl::Time deadline) {
  if (volume.loop.fd) RETURN_IF_ERROR(WithdrawLoop(volume, deadline));
  if (volume.fuse.device && volume.lost.empty()) {
    datapath::WorkerCommand remove;
    remove.mutable_remove();
    RETURN_IF_ERROR(Ask(volume, remove, deadline).status());
    FAIL_POINT("datapath.detach.removed");
  }
  absl::MutexLock lock(&mutex_);
  volume.fuse = FuseMount{};
  return absl::OkStatus();
}

// Waits for what is cached to reach the target as long as the target is there, and otherwise a little while
// for it to come back.
absl::Status Supervisor::Seal(const Volume& volume, absl::Time deadline) {
  const VolumeSlot& slot = SlotOf(volume);
  const auto settled = [&] { return slot.lun.health != LunHealth::kReconnecting; };
  while (true) {
    bool healthy = false;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithDeadline(absl::Condition(&settled), std::min(deadline, absl::Now() + kDetachTimeout));
      healthy = slot.open && slot.lun.health == LunHealth::kHealthy && volume.lost.empty();
    }
    // Looked at again now and then, since the target may go away meanwhile.
    const absl::Time until = healthy ? std::min(deadline, absl::Now() + kDetachTimeout) : deadline;
    const absl::Status sealed = SealLoop(volume.loop, healthy, until);
    if (!absl::IsDeadlineExceeded(sealed) || absl::Now() >= deadline) return sealed;
  }
}

absl::Status Supervisor::WithdrawLoop(Volume& volume, absl::Time deadline) {
  RETURN_IF_ERROR(Seal(volume, deadline));
  FAIL_POINT("datapath.detach.sealed");
  LoopDevice loop;
  {
    absl::MutexLock lock(&mutex_);
    loop = std::move(volume.loop);
    // What is under way must not be waited for.
    if (SlotOf(volume).lun.health != LunHealth::kHealthy) FailInWorker(volume, "detached");
  }
  RETURN_IF_ERROR(RemoveLoop(std::move(loop), deadline));
  FAIL_POINT("datapath.detach.loop");
  return absl::OkStatus();
}

absl::StatusOr<int> Supervisor::Ask(const Volume& volume, datapath::WorkerCommand command,
                                    absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  VolumeSlot& slot = SlotOf(volume);
  while (true) {
    const uint64_t tag = next_tag_++;
    const uint64_t generation = worker_.generation();
    command.set_slot(volume.slot);
    command.set_tag(tag);
    worker_.Send(command);
    const auto answered = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return ending_ || slot.answered == tag || worker_.generation() != generation || !volume.lost.empty();
    };
    if (!mutex_.AwaitWithDeadline(absl::Condition(&answered), deadline)) {
      return absl::DeadlineExceededError(
          absl::StrCat("volume ", volume.options.volume(), ": the target or the worker does not answer"));
    }
    if (slot.answered == tag) return slot.answer.load();
    if (ending_ || !volume.lost.empty()) return Ending();
  }
}

// Waits for no other call: one that works on the volume must not keep it alive.
void Supervisor::Fail(const datapath::Fail& request) {
  absl::MutexLock lock(&mutex_);
  const auto found = volumes_.find(request.volume());
  if (found == volumes_.end()) return;
  Volume& volume = *found->second;
  if (volume.options.connection().target() != request.target() || !volume.failed.empty()) return;
  volume.failed = request.reason().empty() ? "told to fail" : request.reason();
  LogWarn("datapath", "failed for good", {{"volume", request.volume()}, {"reason", volume.failed}});
  if (volume.given) FailInWorker(volume, volume.failed);
}

absl::StatusOr<datapath::Device> Supervisor::Resize(const std::string& name, absl::Time deadline) {
  Volume* volume = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(volume, Claim(name, deadline));
  }
  if (volume == nullptr) return absl::NotFoundError(absl::StrCat("volume ", name, " is not attached"));
  const absl::Status grown = Grow(*volume, deadline);
  absl::MutexLock lock(&mutex_);
  volume->busy = false;
  RETURN_IF_ERROR(grown);
  return Describe(*volume);
}

absl::Status Supervisor::Grow(Volume& volume, absl::Time deadline) {
  const std::string what = absl::StrCat("volume ", volume.options.volume(), ": reading the LUN's size");
  if (!volume.loop.fd || !volume.lost.empty())
    return absl::FailedPreconditionError(absl::StrCat(what, ": no device"));
  datapath::WorkerCommand refresh;
  refresh.mutable_refresh();
  ASSIGN_OR_RETURN(const int error, Ask(volume, refresh, deadline));
  if (error != 0) return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
  FAIL_POINT("datapath.resize.read");
  RETURN_IF_ERROR(GrowLoop(volume.loop, volume.fuse.root.get(), deadline));
  FAIL_POINT("datapath.resize.loop");
  return absl::OkStatus();
}

absl::Status Supervisor::Upgrade(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [name, volume] : volumes_) {
    if (!volume->fuse.can_resend) {
      return absl::FailedPreconditionError(
          "volumes are attached, and kernels before 6.9 cannot hand their requests on");
    }
  }
  worker_.UpgradeTo(upgrade_binary_);
  const uint64_t before = worker_.generation();
  worker_.Kill();
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

absl::Status Supervisor::Stop() {
  absl::MutexLock lock(&mutex_);
  if (!volumes_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the data path has volumes attached (", volumes_.size(), "): detach them first"));
  }
  draining_ = true;
  return absl::OkStatus();
}

std::vector<datapath::Device> Supervisor::List(const std::string& name) {
  std::vector<datapath::Device> devices;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [each, volume] : volumes_) {
      if (volume->loop.fd && (name.empty() || name == each)) devices.push_back(Describe(*volume));
    }
  }
  if (name.empty() || devices.empty()) AddOrphans(name, &devices);
  return devices;
}

datapath::Device Supervisor::Describe(const Volume& volume) const {
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
  const std::string& told = volume.failed.empty() ? volume.lost : volume.failed;
  if (!told.empty() || lun.health == LunHealth::kFailed) {
    device.set_health(datapath::Device::FAILED);
    device.set_reason(told.empty() ? lun.reason.Get() : told);
  } else if (lun.health != LunHealth::kHealthy || !SlotOf(volume).open) {
    device.set_health(datapath::Device::RECONNECTING);
    device.set_reason(worker_.trouble().empty() ? lun.reason.Get() : worker_.trouble());
  } else if (lun.stalled) {
    device.set_health(datapath::Device::RECONNECTING);
    device.set_reason("the target is silent");
  }
  return device;
}

// Adds what a supervisor that died left in use; what has been let go since is forgotten.
void Supervisor::AddOrphans(const std::string& name, std::vector<datapath::Device>* devices) {
  absl::MutexLock lock(&mutex_);
  if (orphans_.empty()) return;
  const std::vector<FoundLoop> found = FindLoops(tag_prefix_);
  std::vector<FoundLoop> left;
  for (const FoundLoop& orphan : orphans_) {
    const bool there = std::find(found.begin(), found.end(), orphan) != found.end();
    if (there && !IsOurs(orphan.number)) left.push_back(orphan);
  }
  orphans_ = std::move(left);
  for (const FoundLoop& orphan : orphans_) {
    if (!name.empty() && LoopTag(tag_prefix_, name) != tag_prefix_ + orphan.name) continue;
    datapath::Device& device = devices->emplace_back();
    device.set_volume(name.empty() ? orphan.name : name);
    device.set_path(absl::StrCat("/dev/loop", orphan.number));
    device.set_size_bytes(orphan.size_bytes);
    device.set_read_only(orphan.read_only);
    device.set_health(datapath::Device::FAILED);
    device.set_reason("the data path that served it has died: unmount it");
  }
}

}  // namespace lunkeeper
