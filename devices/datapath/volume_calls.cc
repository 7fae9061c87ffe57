// Each call runs on a thread of its own (supervisor.h) and may take as long as its client allows. An attach
// goes up this list, a detach down, and a failed attach goes down from where it is:
//
//   1. insert the volume       a slot; from here on other calls wait for this one
//   2. make the FUSE mount     the kernel's side of the requests
//   3. give it to the worker   logs in, and tells size and block size
//   4. make the loop device    the block device that is mounted
//   5. record the attachment   what a later detach goes by if this process dies (attachment_records.h)
//
// Whatever waits for I/O of the volume (steps that touch the loop device) is done by a child process, so that
// this process can be killed at any line: it holds the descriptors whose closing ends all I/O.

#include "devices/datapath/volume_calls.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "devices/datapath/limits_message.h"
#include "devices/datapath/loop_tag.h"

namespace lunkeeper {
namespace {

// How long a detach waits for a target that is away, for the sake of what is still cached.
constexpr absl::Duration kDetachTimeout = absl::Seconds(5);
// What a failed attach may take for its undoing, although its client's time is over.
constexpr absl::Duration kUndoTimeout = absl::Seconds(15);

void TellNobody() {}

absl::Status CheckAttach(const datapath::Attach& request) {
  if (request.volume().empty()) return absl::InvalidArgumentError("attach: no volume named");
  if (request.connection().target().empty() || request.connection().portal().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("volume ", request.volume(), ": no portal or target to log in to"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<datapath::Device> VolumeCalls::AttachVolume(const datapath::Attach& request,
                                                           absl::Time deadline) {
  RETURN_IF_ERROR(CheckAttach(request));
  const VolumeId id(request.volume());
  ASSIGN_OR_RETURN(SupervisedVolume * volume, volumes_.BeginCall(id, deadline));
  if (volume == nullptr) {
    RETURN_IF_ERROR(CheckNoOrphan(id));
  } else if (volume->cut_off) {
    return TellCutOff(*volume);
  } else if (volume->loop.fd) {
    return AnswerAttached(*volume, request);
  } else {
    RETURN_IF_ERROR(TakeDown(*volume, deadline, TellNobody));
  }
  return MakeVolume(request, deadline);
}

absl::Status VolumeCalls::CheckNoOrphan(const VolumeId& id) {
  const std::vector<datapath::Device> orphans = volumes_.FindOrphans(id);
  if (orphans.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("volume ", id.value(), ": ", orphans[0].path(),
                                                    " is left of it and in use: ", orphans[0].reason()));
}

absl::StatusOr<datapath::Device> VolumeCalls::AnswerAttached(SupervisedVolume& volume,
                                                             const datapath::Attach& request) {
  // A node that attaches anew has asked for a grant anew, and knows its limits.
  volumes_.SetLimits(volume.id, FromMessage(request.limits()));
  // Of its life before this attach.
  if (!volume.loss.empty()) volumes_.ChangeKept([&] { volume.loss.clear(); });
  datapath::Device device = volumes_.DescribeVolume(volume);
  volumes_.EndCall(volume);
  if (device.target() == request.connection().target()) return device;
  return absl::FailedPreconditionError(absl::StrCat("volume ", request.volume(), " is attached from target ",
                                                    device.target(), ": detach it first"));
}

absl::StatusOr<datapath::Device> VolumeCalls::MakeVolume(const datapath::Attach& request,
                                                         absl::Time deadline) {
  // Between the end of the last call and here another attach may have come first: that one wins.
  ASSIGN_OR_RETURN(SupervisedVolume * volume, volumes_.InsertVolume(request));
  const absl::Status made = MakeDevice(*volume, deadline);
  if (!made.ok()) {
    LogWarn("datapath", "attach failed", {{"volume", request.volume()}, {"error", made.ToString()}});
    TakeDown(*volume, absl::Now() + kUndoTimeout, TellNobody)
        .IgnoreError();  // the next detach removes the rest
    return made;
  }
  datapath::Device device = volumes_.DescribeVolume(*volume);
  if (!volume->fuse.can_resend)
    LogWarn("datapath",
            "this kernel (before 6.9) hands no requests on: the volume fails if the data path's worker dies",
            {{"volume", request.volume()}});
  volumes_.EndCall(*volume);
  LogInfo("datapath", "attached", {{"volume", request.volume()}, {"device", device.path()}});
  return device;
}

absl::Status VolumeCalls::MakeDevice(SupervisedVolume& volume, absl::Time deadline) {
  FAIL_POINT("datapath.attach.recorded");
  ASSIGN_OR_RETURN(FuseMount fuse, MakeFuseMount());
  fuse.can_resend = fuse.can_resend && may_resend_;
  FAIL_POINT("datapath.attach.fuse");
  volumes_.ServeMount(volume, std::move(fuse));
  FAIL_POINT("datapath.attach.given");
  RETURN_IF_ERROR(volumes_.AwaitLogin(volume, deadline));
  FAIL_POINT("datapath.attach.login");
  // Only now: the loop device's block size is the LUN's, and stays what it was made with.
  const LoopOptions options = {.tag = LoopTag(volumes_.tag_prefix(), volume.id.value()),
                               .block_size = volumes_.block_size(volume),
                               .read_only = volume.options.read_only()};
  ASSIGN_OR_RETURN(LoopDevice loop, MakeLoop(volume.fuse.root.get(), options, deadline));
  FAIL_POINT("datapath.attach.loop");
  volumes_.KeepLoop(volume, std::move(loop));
  return RecordAttachment(volume);
}

// Last, since nobody can have written before the answer. A reader writes nothing.
absl::Status VolumeCalls::RecordAttachment(const SupervisedVolume& volume) {
  if (records_.Remove(volume.id)) {
    LogError("datapath", "attached again after its data path died: what was not synced then may be lost",
             {{"volume", volume.id.value()}});
  }
  return volume.options.read_only() ? absl::OkStatus() : records_.Write(volume.id);
}

absl::Status VolumeCalls::DetachVolume(const VolumeId& id, absl::Time deadline,
                                       const std::function<void()>& written_back) {
  ASSIGN_OR_RETURN(SupervisedVolume * volume, volumes_.BeginCall(id, deadline));
  if (volume == nullptr) {
    RETURN_IF_ERROR(AwaitNoOrphan(id, deadline, [&] { return volumes_.FindOrphans(id); }));
    return records_.TellLoss(id);
  }
  if (volume->cut_off) return TellCutOff(*volume);
  if (!volume->loss.empty()) return TellLossAgain(*volume);
  const absl::Status down = TakeDown(*volume, deadline, written_back);
  if (!down.ok()) return down;
  FAIL_POINT("datapath.detach.erased");
  LogInfo("datapath", "detached", {{"volume", id.value()}});
  return absl::OkStatus();
}

// The volume is gone then: the next call finds nothing, or an orphan that somebody still has open.
absl::Status VolumeCalls::TellCutOff(SupervisedVolume& volume) {
  if (!volume.loss.empty()) {
    const absl::Status lost = absl::DataLossError(volume.loss);
    records_.Remove(volume.id);
    volumes_.EraseVolume(volume);
    return lost;
  }
  volumes_.ChangeKept([&] {
    volume.loss = absl::StrCat("volume ", volume.id.value(), ": ", volume.reason,
                               ": what was written and not synced may be lost");
  });
  LogError("datapath", "cut off", {{"volume", volume.id.value()}, {"error", volume.loss}});
  const absl::Status lost = absl::DataLossError(volume.loss);
  volumes_.EndCall(volume);
  return lost;
}

// The first answer may be lost with the plugin that was to get it.
absl::Status VolumeCalls::TellLossAgain(SupervisedVolume& volume) {
  const absl::Status lost = absl::DataLossError(volume.loss);
  volumes_.ChangeKept([&] { volume.loss.clear(); });
  volumes_.EndCall(volume);
  return lost;
}

// Removes what there is of a volume in this call, and then the volume. Where a step fails, the call ends with
// the rest, and the next attach or detach goes on from there.
absl::Status VolumeCalls::TakeDown(SupervisedVolume& volume, absl::Time deadline,
                                   const std::function<void()>& written_back) {
  const absl::Status removed = RemoveDevice(volume, deadline, written_back);
  if (removed.ok()) {
    volumes_.EraseVolume(volume);
  } else {
    volumes_.EndCall(volume);
  }
  return removed;
}

absl::Status VolumeCalls::RemoveDevice(SupervisedVolume& volume, absl::Time deadline,
                                       const std::function<void()>& written_back) {
  if (volume.loop.fd) {
    ASSIGN_OR_RETURN(LoopDevice loop, SealLoopOf(volume, deadline));
    records_.Remove(volume.id);
    written_back();
    FAIL_POINT("datapath.detach.sealed");
    RETURN_IF_ERROR(RemoveLoop(std::move(loop), deadline));
    FAIL_POINT("datapath.detach.loop");
  }
  if (volume.fuse.device && !volume.lost()) {
    datapath::WorkerCommand remove;
    remove.mutable_remove();
    RETURN_IF_ERROR(volumes_.AskWorker(volume, remove, deadline).status());
    FAIL_POINT("datapath.detach.removed");
  }
  // Last: while the worker might still answer requests, the mount they belong to has to be there.
  volumes_.CloseMount(volume);
  return absl::OkStatus();
}

// What is cached has to reach the target, unless the volume has failed for good: a raw block volume's writer
// may have closed it without a sync, and this is its last chance. A target that is away is waited for a
// little while; then the caller repeats the call, and the device stays as it is. The target may go away
// during the write-back, so that is done in rounds.
absl::Status VolumeCalls::SealDevice(SupervisedVolume& volume, absl::Time deadline) {
  const SteadyDeadline end(deadline);
  while (true) {
    const absl::Time round_end = std::min(deadline, absl::Now() + kDetachTimeout);
    switch (volumes_.AwaitTarget(volume, round_end)) {
      case TargetCondition::kFailed:
        return SealFailedDevice(volume, deadline);
      case TargetCondition::kAway:
        return absl::UnavailableError(
            absl::StrCat("volume ", volume.id.value(), ": the target is away, and ", volume.loop.path(),
                         " may have data that are not written back yet: repeat this later"));
      case TargetCondition::kHealthy:
        break;
    }
    const absl::Status sealed = SealLoop(
        volume.loop, [&] { return WriteBack(volume, deadline); }, deadline);
    if (!absl::IsDeadlineExceeded(sealed) || end.IsOver()) return sealed;
  }
}

// What the kernel itself says is not enough: umount(2) succeeds whatever becomes of a file system's cache,
// and only the child that waits for a flush gets its error; that one may have been given up, or killed
// with its supervisor. The count of failed writes has all since the attach, those with a writer that knows,
// too.
absl::Status VolumeCalls::WriteBack(SupervisedVolume& volume, absl::Time deadline) {
  const absl::Status written = WriteBackLoop(volume.loop, std::min(deadline, absl::Now() + kDetachTimeout));
  if (!written.ok() && !absl::IsDataLoss(written)) return written;
  const uint64_t failed = volumes_.TakeFailedWrites(volume);
  if (failed == 0) return written;
  return absl::DataLossError(absl::StrCat(
      "volume ", volume.id.value(), ": ", failed, " writes or flushes of ", volume.loop.path(),
      " failed: what was written and not synced is lost. See why (is the array's pool full?), and restore "
      "from a backup what needs it; a repeated call goes on"));
}

// Counted before: a sealed device has no cache any more.
absl::Status VolumeCalls::SealFailedDevice(const SupervisedVolume& volume, absl::Time deadline) {
  const std::optional<uint64_t> cached_bytes = CountCachedBytes(volume.loop);
  RETURN_IF_ERROR(SealLoop(
      volume.loop, [] { return absl::OkStatus(); }, deadline));
  LogLostData(volume, cached_bytes);
  return absl::OkStatus();
}

// Writes that were answered with an error are not counted: their writers know.
void VolumeCalls::LogLostData(const SupervisedVolume& volume, std::optional<uint64_t> cached_bytes) {
  const datapath::Device device = volumes_.DescribeVolume(volume);
  LogWarn("datapath", "detached without writing back, since the volume has failed for good",
          {{"volume", volume.id.value()},
           {"reason", device.reason()},
           {"lost_bytes", cached_bytes ? absl::StrCat(*cached_bytes) : "unknown"},
           {"unflushed_writes", absl::StrCat(volumes_.unflushed_writes(volume))},
           {"errors", absl::StrCat(device.errors())}});
}

absl::StatusOr<LoopDevice> VolumeCalls::SealLoopOf(SupervisedVolume& volume, absl::Time deadline) {
  // First closed to everybody else: a device that is open is in use, and nothing has been taken from it yet.
  volumes_.ChangeKept([&] { volume.has_child = true; });
  const absl::Status sealed = SealDevice(volume, deadline);
  if (!sealed.ok()) {
    volumes_.ChangeKept([&] {
      if (absl::IsDataLoss(sealed)) volume.loss = std::string(sealed.message());
      volume.has_child = false;
    });
    return sealed;
  }
  return volumes_.TakeLoop(volume);  // at once: nothing is lost from here on
}

absl::StatusOr<datapath::Device> VolumeCalls::ResizeVolume(const VolumeId& id, absl::Time deadline) {
  ASSIGN_OR_RETURN(SupervisedVolume * volume, volumes_.BeginCall(id, deadline));
  if (volume == nullptr) return absl::NotFoundError(absl::StrCat("volume ", id.value(), " is not attached"));
  const absl::Status grown = GrowDevice(*volume, deadline);
  datapath::Device device = volumes_.DescribeVolume(*volume);
  volumes_.EndCall(*volume);
  RETURN_IF_ERROR(grown);
  return device;
}

absl::Status VolumeCalls::GrowDevice(SupervisedVolume& volume, absl::Time deadline) {
  const std::string what = absl::StrCat("volume ", volume.id.value(), ": reading the LUN's size");
  if (!volume.loop.fd || volume.lost()) {
    return absl::FailedPreconditionError(absl::StrCat(what, ": no device"));
  }
  // From the bottom up: the LUN's size to the worker, then the worker's to the loop device.
  datapath::WorkerCommand refresh;
  refresh.mutable_refresh();
  ASSIGN_OR_RETURN(const int error, volumes_.AskWorker(volume, refresh, deadline));
  if (error != 0) return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
  FAIL_POINT("datapath.resize.read");
  // A flush under way, which a target may hold for minutes, holds the child as well.
  volumes_.ChangeKept([&] { volume.has_child = true; });
  const absl::Status grown = GrowLoop(volume.loop, volume.fuse.root.get(), deadline);
  volumes_.ChangeKept([&] { volume.has_child = false; });
  RETURN_IF_ERROR(grown);
  FAIL_POINT("datapath.resize.loop");
  return absl::OkStatus();
}

}  // namespace lunkeeper
