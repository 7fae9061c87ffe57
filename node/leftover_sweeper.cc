// Two leftovers, each with its reason.
//
// Unused grants. A call that failed, or whose caller gave up, may have been granted the volume after all: the
// answer was lost, or it waited at the array until a moment too late. Nobody may ever ask for that volume
// again, and no other node could have it. So after a failed stage, and after a start, grants without a device
// are released, for as long as a controller may still be waiting for one on our behalf (kDoubt).
//
// Forgotten devices. Kubelet, killed between Unpublish and Unstage, forgets the staging mount. On a healthy
// device that costs nothing: the next Stage finds it. A device that failed for good (fenced, or away for too
// long) would stay for ever, and keep the node from being clean. It is removed once the grace period has
// passed and nothing but kubelet's staging path is mounted of it. A pod's own mount is never touched, even of
// a pod that is gone: while it is there, a container that restarts fails on it, and without it the container
// would write into an empty directory of the node.
#include "node/leftover_sweeper.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// A sweep's limit; stopping the process waits for it.
constexpr absl::Duration kSweepTime = absl::Seconds(5);
// The last component of the staging paths that kubelet makes (pkg/volume/csi, makeDeviceMountPath).
constexpr char kKubeletStaging[] = "/globalmount";

bool IsStaging(const Mount& mount) { return !mount.is_node && absl::EndsWith(mount.target, kKubeletStaging); }

bool OnlyStaged(const std::vector<Mount>& mounts) {
  return std::all_of(mounts.begin(), mounts.end(), IsStaging);
}

}  // namespace

void LeftoverSweeper::GrantMayStillCome() {
  absl::MutexLock lock(&mutex_);
  in_doubt_until_ = absl::Now() + kDoubt;
}

void LeftoverSweeper::ReturnUnusedGrants() {
  const absl::Time began = absl::Now();
  {
    absl::MutexLock lock(&mutex_);
    if (in_doubt_until_ == absl::InfinitePast()) return;
  }
  const absl::Status status = ReleaseUnusedGrants(began + kSweepTime);
  if (!status.ok()) {
    LogWarn("node", "grants that are not used could not be given back; trying again",
            {{"error", std::string(status.message())}});
    return;
  }
  // By the time when this sweep began: a grant that came in the middle of it may have been missed.
  absl::MutexLock lock(&mutex_);
  if (began >= in_doubt_until_) in_doubt_until_ = absl::InfinitePast();
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
                                  [&](const Device& device) { return device.volume == grant.volume; });
    if (!used && grant.owner == GrantOwner::kNode) unused.push_back(grant.volume);
  }
  return unused;
}

void LeftoverSweeper::RemoveForgotten() {
  const absl::StatusOr<std::vector<VolumeId>> forgotten = ListForgotten();
  if (!forgotten.ok()) return;  // the data path does not answer; the next sweep asks again
  // Built anew, so that a device which recovers, or is mounted again, loses its time.
  std::map<VolumeId, absl::Time> since;
  for (const VolumeId& volume : *forgotten) {
    const absl::Time now = absl::Now();
    const auto known = forgotten_since_.find(volume);
    const absl::Time began = known == forgotten_since_.end() ? now : known->second;
    since[volume] = began;
    if (now - began < grace_period_) continue;
    const auto guard = locks_.TryLock(volume.value());
    if (!guard) continue;  // the orchestrator has not forgotten it
    const absl::Status removed = RemoveDevice(volume, now + kSweepTime);
    LogInfo("node",
            removed.ok() ? "removed a failed device that was left over" : "a failed device is left over",
            {{"volume", volume.value()}, {"error", std::string(removed.message())}});
    since[volume] = absl::Now();  // tried again only after another grace period
  }
  forgotten_since_ = std::move(since);
}

absl::StatusOr<std::vector<VolumeId>> LeftoverSweeper::ListForgotten() {
  std::vector<VolumeId> forgotten;
  ASSIGN_OR_RETURN(const std::vector<Device> devices, initiator_.List());
  for (const Device& device : devices) {
    if (device.health != DeviceHealth::kFailed) continue;
    const absl::StatusOr<std::vector<Mount>> mounts = device_mounts_.ListMountsOf(device);
    if (mounts.ok() && OnlyStaged(*mounts)) forgotten.push_back(device.volume);
  }
  return forgotten;
}

// Under the volume's lock, so what was listed without it is checked again.
absl::Status LeftoverSweeper::RemoveDevice(const VolumeId& volume, absl::Time deadline) {
  ASSIGN_OR_RETURN(const std::optional<Device> device, initiator_.Find(volume));
  if (!device || device->health != DeviceHealth::kFailed) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<Mount> mounts, device_mounts_.ListMountsOf(*device));
  if (!OnlyStaged(mounts)) return absl::OkStatus();
  for (const Mount& mount : mounts)
    RETURN_IF_ERROR(device_mounts_.UnmountAll(volume, mount.target, deadline));
  return stager_.RemoveForgotten(volume, deadline);
}

}  // namespace lunkeeper
