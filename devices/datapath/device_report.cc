#include "devices/datapath/device_report.h"

#include "devices/datapath/limits_message.h"

namespace lunkeeper {
namespace {

// What is final comes first: a volume marked by FailVolume is failed, even while its worker has not heard
// yet.
void SetHealth(const SupervisedVolume& volume, const VolumeSlot& slot, const std::string& worker_trouble,
               datapath::Device& device) {
  const LunState& lun = slot.lun;
  if (volume.fail_requested || volume.lost()) {
    device.set_health(datapath::Device::FAILED);
    device.set_reason(volume.reason);
  } else if (lun.health == LunHealth::kFailed) {
    device.set_health(datapath::Device::FAILED);
    device.set_reason(lun.reason.Load());
  } else if (lun.health != LunHealth::kHealthy || !slot.open) {
    device.set_health(datapath::Device::RECONNECTING);
    device.set_reason(TroubleOf(slot, worker_trouble));
  } else if (lun.stalled) {
    device.set_health(datapath::Device::RECONNECTING);
    device.set_reason("the target is silent");
  }
}

datapath::Latency ToMessage(const LatencyCounters& counters) {
  const LatencyCounts counts = counters.Counts();
  datapath::Latency message;
  message.mutable_buckets()->Assign(counts.buckets.begin(), counts.buckets.end());
  message.set_microseconds(counts.microseconds);
  return message;
}

void AddStatistics(const LunState& lun, datapath::Device& device) {
  const uint64_t logins = lun.logins;
  device.set_reconnects(logins > 0 ? logins - 1 : 0);
  device.set_digest_errors(lun.digest_errors);
  device.set_path_since_unix_seconds(lun.portal_since);
  device.set_path_moves(lun.path_moves);
  device.set_attached_unix_seconds(lun.first_login);
  *device.mutable_read_latency() = ToMessage(lun.read_latency);
  *device.mutable_write_latency() = ToMessage(lun.write_latency);
  *device.mutable_flush_latency() = ToMessage(lun.flush_latency);
}

}  // namespace

// If workers die one after the other, that is the trouble, and not what the last of them said of the LUN.
std::string TroubleOf(const VolumeSlot& slot, const std::string& worker_trouble) {
  return worker_trouble.empty() ? slot.lun.reason.Load() : worker_trouble;
}

datapath::Device BuildDevice(const SupervisedVolume& volume, const VolumeSlot& slot,
                             const std::string& worker_trouble, bool statistics) {
  const LunState& lun = slot.lun;
  datapath::Device device;
  device.set_volume(volume.options.volume());
  device.set_path(volume.loop.path());
  device.set_size_bytes(lun.size_bytes);
  device.set_read_only(volume.options.read_only());
  device.set_target(volume.options.connection().target());
  device.set_portal(volume.options.connection().portal());
  *device.mutable_other_portals() = volume.options.connection().other_portals();
  device.set_used_portal(lun.portal.Load());
  device.set_reads(lun.reads);
  device.set_writes(lun.writes);
  device.set_flushes(lun.flushes);
  device.set_read_bytes(lun.read_bytes);
  device.set_written_bytes(lun.written_bytes);
  device.set_errors(lun.errors);
  device.set_set_aside(volume.set_aside);
  *device.mutable_limits() = ToMessage(slot.limits.GetLimits());
  SetHealth(volume, slot, worker_trouble, device);
  if (statistics) AddStatistics(lun, device);
  return device;
}

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
    case LunFailure::kRequested:
      break;
  }
  return absl::StatusCode::kPermissionDenied;
}

}  // namespace lunkeeper
