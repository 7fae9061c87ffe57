// Two leftovers, each with its reason.
//
// Unused grants. A call that failed, or whose caller gave up, may have been granted the volume after all: the
// answer was lost, or it waited at the array until a moment too late. Nobody may ever ask for that volume
// again, and no other node could have it. So after a failed stage or publish, and after a start, grants
// without a device are released, for as long as a controller may still be waiting for one on our behalf.
//
// Forgotten devices. Kubelet, killed between Unpublish and Unstage, forgets the staging mount
// (kubernetes#121937); nor does it come back after a failed Stage that could not be undone. A device that
// failed for good (fenced, or away for too long) would keep the node from being clean, and one that works
// would keep the volume from all other nodes, for ever. It is removed, or unstaged, once its time has passed
// and nothing but kubelet's staging path is mounted of it. A pod's own mount is never touched, even of a pod
// that is gone: while it is there, a container that restarts fails on it, and without it the container would
// write into an empty directory of the node.
//
// What kubelet has staged it does not stage again: it only repeats the publish. So nothing is unstaged behind
// its back while it does. And a failed device stays: it is by that that failover deletes the pod. Where
// kubelet itself could not publish for so long, the publish stages the volume again (Publisher).
#include "node/leftover_sweeper.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "node/volume_health.h"

namespace lunkeeper {
namespace {

// A sweep's limit; stopping the process waits for it.
constexpr absl::Duration kSweepTime = absl::Seconds(5);
// The last component of the staging paths that kubelet makes (pkg/volume/csi, makeDeviceMountPath).
constexpr char kKubeletStaging[] = "/globalmount";
// Kubelet repeats a failed call after 2 min 2 s at most, and a call of its own takes 2 min at most.
constexpr absl::Duration kKubeletRepeats = absl::Minutes(5);

bool IsStagingPath(const std::string& target) { return absl::EndsWith(target, kKubeletStaging); }
bool IsStaging(const Mount& mount) { return !mount.is_node && IsStagingPath(mount.target); }

bool OnlyStaged(const std::vector<Mount>& mounts) {
  return std::all_of(mounts.begin(), mounts.end(), IsStaging);
}

}  // namespace

void LeftoverSweeper::GrantMayStillCome() {
  absl::MutexLock lock(&mutex_);
  in_doubt_until_ = SteadyDeadline(doubt_);
}

void LeftoverSweeper::ReturnUnusedGrants() {
  const auto began = std::chrono::steady_clock::now();
  {
    absl::MutexLock lock(&mutex_);
    if (!in_doubt_until_) return;
  }
  const absl::Status status = ReleaseUnusedGrants(absl::Now() + kSweepTime);
  if (!status.ok()) {
    LogWarn("node", "grants that are not used could not be given back; trying again",
            {{"error", std::string(status.message())}});
    return;
  }
  // By the time when this sweep began: a grant that came in the middle of it may have been missed.
  absl::MutexLock lock(&mutex_);
  if (in_doubt_until_ && began >= in_doubt_until_->end()) in_doubt_until_.reset();
}

absl::Status LeftoverSweeper::ReleaseUnusedGrants(absl::Time deadline) {
  ASSIGN_OR_RETURN(const std::vector<VolumeId> unused, ListUnusedGrants(deadline));
  absl::Status status;
  for (const VolumeId& volume : unused) {
    const auto guard = locks_.TryLock(volume.value());
    if (!guard) continue;  // a call is working on it, and sees to its grant
    LogInfo("node", "giving back a grant that is not used", {{"volume", volume.value()}});
    status.Update(stager_.ReleaseUnusedGrant(volume, deadline));
  }
  return status;
}

absl::StatusOr<std::vector<VolumeId>> LeftoverSweeper::ListUnusedGrants(absl::Time deadline) {
  std::vector<VolumeId> unused;
  if (grants_ == nullptr) return unused;
  ASSIGN_OR_RETURN(const std::vector<HeldGrant> held, grants_->Held(VolumeId(), deadline));
  ASSIGN_OR_RETURN(const std::vector<Device> devices, initiator_.List());
  for (const HeldGrant& grant : held) {
    const bool used = std::any_of(devices.begin(), devices.end(),
                                  [&](const Device& device) { return MayUse(device, grant); });
    if (!used && grant.owner == GrantOwner::kNode) unused.push_back(grant.volume);
  }
  if (!unused.empty()) RETURN_IF_ERROR(device_mounts_.CheckKnown([](const Mount&) { return true; }));
  return unused;
}

void LeftoverSweeper::NoteCall(const VolumeId& volume) {
  absl::MutexLock lock(&mutex_);
  called_.insert(volume);
}

void LeftoverSweeper::NoteRefusal(const VolumeId& volume) {
  absl::MutexLock lock(&mutex_);
  refused_[volume] = std::chrono::steady_clock::now();
}

// Asked under the volume's lock: no call is at work on it.
bool LeftoverSweeper::IsRemembered(const Forgotten& forgotten) {
  const auto& [volume, failed] = forgotten;
  absl::MutexLock lock(&mutex_);
  const auto repeated_since = std::chrono::steady_clock::now() - absl::ToChronoSeconds(kKubeletRepeats);
  std::erase_if(refused_, [&](const auto& entry) { return entry.second < repeated_since; });
  return failed ? refused_.contains(volume) : called_.contains(volume);
}

void LeftoverSweeper::RemoveForgotten() {
  {
    absl::MutexLock lock(&mutex_);
    for (const VolumeId& volume : std::exchange(called_, {})) forgotten_since_.erase({volume, false});
  }
  const absl::StatusOr<std::vector<Forgotten>> forgotten = ListForgotten();
  if (!forgotten.ok()) return;  // the data path does not answer; the next sweep asks again
  // Built anew, so that a device which recovers, or is mounted again, loses its time.
  std::map<Forgotten, SteadyTime> since;
  for (const Forgotten& each : *forgotten) {
    const auto& [volume, failed] = each;
    const SteadyTime now = std::chrono::steady_clock::now();
    const auto known = forgotten_since_.find(each);
    const SteadyTime began = known == forgotten_since_.end() ? now : known->second;
    since[each] = began;
    if (absl::FromChrono(now - began) < (failed ? grace_period_ : idle_period_)) continue;
    const auto guard = locks_.TryLock(volume.value());
    if (!guard || IsRemembered(each)) continue;  // the orchestrator has not forgotten it
    const absl::Status removed = RemoveDevice(each, absl::Now() + kSweepTime);
    if (absl::IsDataLoss(removed))  // nobody else learns of it
      LogError("node", "data of a volume may be lost",
               {{"volume", volume.value()}, {"error", std::string(removed.message())}});
    LogInfo("node", removed.ok() ? "removed a device that was left over" : "a device is left over",
            {{"volume", volume.value()}, {"error", std::string(removed.message())}});
    // Perhaps its grant alone is left, as where its array is away, and no later sweep finds the volume here.
    if (!removed.ok()) GrantMayStillCome();
    since[each] = std::chrono::steady_clock::now();  // tried again only after another such time
  }
  forgotten_since_ = std::move(since);
}

// The mount table is read once for all. One that cannot be read shows no mounts: RemoveDevice looks again.
absl::StatusOr<std::vector<LeftoverSweeper::Forgotten>> LeftoverSweeper::ListForgotten() {
  std::vector<Forgotten> forgotten;
  ASSIGN_OR_RETURN(const std::vector<Device> devices, initiator_.List());
  const auto mounted = ListMountTargets(devices, mounter_);
  for (const Device& device : devices) {
    // What one that reconnects has cached cannot be written back yet: it works again, or fails.
    if (device.health == DeviceHealth::kReconnecting) continue;
    const auto targets = mounted.find(device.volume);
    const bool staged_alone = targets == mounted.end() ||
                              std::all_of(targets->second.begin(), targets->second.end(), IsStagingPath);
    if (staged_alone) forgotten.emplace_back(device.volume, device.health == DeviceHealth::kFailed);
  }
  return forgotten;
}

// Under the volume's lock, so what was listed without it is checked again.
absl::Status LeftoverSweeper::RemoveDevice(const Forgotten& forgotten, absl::Time deadline) {
  const auto& [volume, failed] = forgotten;
  const DeviceHealth health = failed ? DeviceHealth::kFailed : DeviceHealth::kHealthy;
  ASSIGN_OR_RETURN(const std::optional<Device> device, initiator_.Find(volume));
  if (!device || device->health != health) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, device_mounts_.ListMountsOf(*device));
  if (!OnlyStaged(mounts)) return absl::OkStatus();
  if (!failed) return stager_.UnstageVolume(volume, mounts.empty() ? "" : mounts.front().target, deadline);
  for (const Mount& mount : mounts)
    RETURN_IF_ERROR(device_mounts_.UnmountAll(volume, mount.target, deadline));
  return stager_.RemoveForgotten(volume, deadline);
}

}  // namespace lunkeeper
