#include "fencing/protocol/messages.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/connection_message.h"

// Each pair of Read… and Write… is one message; they are pure and know nothing of transport. Only what a node
// sends to a controller is checked. In the other direction the controller's certificate vouches for the
// content; an access it does not know is taken for an exclusive one.
namespace lunkeeper {
namespace {

// The limits of the CSI specification for a node_id and for other ids ("Size Limits").
constexpr size_t kLongestNode = 256;
constexpr size_t kLongestVolume = 128;
constexpr size_t kLongestArray = 32;  // --array-name
constexpr size_t kLongestBoot = 64;   // the kernel's boot id has 36 digits
// More than a node has, so that what a controller keeps of a heartbeat is bounded.
constexpr int kMostVolumes = 4096;
constexpr int kMostArrays = 64;

// Ids end up in log lines, file names and SQL, so control characters and spaces are refused at the door.
absl::Status CheckText(const char* field, const std::string& text, size_t longest) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isgraph(c); });
  if (!text.empty() && text.size() <= longest && plain) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": is required, with at most ", longest, " printable characters"));
}

// Ids are not checked: an unknown one matches no volume.
fencing::VolumeSet ReadVolumes(const google::protobuf::RepeatedPtrField<std::string>& ids) {
  fencing::VolumeSet volumes;
  for (const std::string& id : ids) volumes.emplace(id);
  return volumes;
}

absl::Status CheckVolumes(const char* field, const google::protobuf::RepeatedPtrField<std::string>& ids) {
  const auto too_long = [](const std::string& id) { return id.size() > kLongestVolume; };
  if (ids.size() <= kMostVolumes && std::none_of(ids.begin(), ids.end(), too_long)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": at most ", kMostVolumes, " ids of at most ", kLongestVolume, " bytes"));
}

absl::Status CheckSizes(const coordinator::v1::Heartbeat& message) {
  if (message.boot_id().size() > kLongestBoot)
    return absl::InvalidArgumentError(absl::StrCat("boot_id: at most ", kLongestBoot, " bytes"));
  RETURN_IF_ERROR(CheckVolumes("failing", message.failing()));
  RETURN_IF_ERROR(CheckVolumes("failed", message.failed()));
  RETURN_IF_ERROR(CheckVolumes("closed", message.closed()));
  RETURN_IF_ERROR(CheckVolumes("idle", message.idle()));
  RETURN_IF_ERROR(CheckVolumes("present", message.present()));
  const auto too_long = [](const auto& each) { return each.first.size() > kLongestArray; };
  if (message.known_size() <= kMostArrays &&
      std::none_of(message.known().begin(), message.known().end(), too_long))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("known: at most ", kMostArrays, " arrays of at most ", kLongestArray, " bytes"));
}

// Of one heartbeat: an honest node sends two.
constexpr int kMostDetails = 8;

bool IsDetailText(const std::string& text) {
  return !text.empty() && text.size() <= kLongestDetailText &&
         std::none_of(text.begin(), text.end(), [](char c) { return absl::ascii_iscntrl(c); });
}

// A newer node may know more states: for people, unknown is an answer.
PathState ReadState(coordinator::v1::DeviceDetail::PathState state) {
  switch (state) {
    case coordinator::v1::DeviceDetail::CONNECTED:
      return PathState::kConnected;
    case coordinator::v1::DeviceDetail::STANDBY:
      return PathState::kStandby;
    case coordinator::v1::DeviceDetail::RECONNECTING:
      return PathState::kReconnecting;
    case coordinator::v1::DeviceDetail::LOST:
      return PathState::kLost;
    case coordinator::v1::DeviceDetail::FAILED:
      return PathState::kFailed;
    default:
      return PathState::kUnknown;
  }
}

coordinator::v1::DeviceDetail::PathState WriteState(PathState state) {
  switch (state) {
    case PathState::kConnected:
      return coordinator::v1::DeviceDetail::CONNECTED;
    case PathState::kStandby:
      return coordinator::v1::DeviceDetail::STANDBY;
    case PathState::kReconnecting:
      return coordinator::v1::DeviceDetail::RECONNECTING;
    case PathState::kLost:
      return coordinator::v1::DeviceDetail::LOST;
    case PathState::kFailed:
      return coordinator::v1::DeviceDetail::FAILED;
    case PathState::kUnknown:
      break;
  }
  return coordinator::v1::DeviceDetail::UNKNOWN;
}

VolumeLimits ReadLimits(const coordinator::v1::Limits& message) {
  return {
      .iops = message.iops(), .bytes_per_second = message.bytes_per_second(), .version = message.version()};
}

coordinator::v1::Limits WriteLimits(const VolumeLimits& limits) {
  coordinator::v1::Limits message;
  message.set_iops(limits.iops);
  message.set_bytes_per_second(limits.bytes_per_second);
  message.set_version(limits.version);
  return message;
}

}  // namespace

absl::StatusOr<NodeId> ReadNode(const std::string& node, const std::string& node_name) {
  if (absl::Status status = CheckText("node", node, kLongestNode); !status.ok()) return status;
  const NodeId id(node);
  if (!IsNodeId(node))
    return absl::InvalidArgumentError("node: must be <name>.<instance>, which has 16 hexadecimal digits");
  if (fencing::NameOf(id).value() == node_name) return id;
  return absl::PermissionDeniedError(absl::StrCat("the caller says it is ", node,
                                                  ", and its token is of the machine ", node_name,
                                                  "; a node may speak for itself only"));
}

absl::StatusOr<VolumeId> ReadVolume(const std::string& volume_id) {
  if (absl::Status status = CheckText("volume_id", volume_id, kLongestVolume); !status.ok()) return status;
  return VolumeId(volume_id);
}

// An access that is not known, from a newer node, is refused: guessing could grant two writers.
absl::StatusOr<Access> ReadAccess(coordinator::v1::Access access) {
  switch (access) {
    case coordinator::v1::EXCLUSIVE:
      return Access::kExclusive;
    case coordinator::v1::READ_ONLY:
      return Access::kReadOnly;
    case coordinator::v1::SHARED_WRITE:
      return Access::kSharedWrite;
    default:
      return absl::InvalidArgumentError("access: is required");
  }
}

// A switch without a default, so that the compiler names this place when a kind of access is added.
coordinator::v1::Access WriteAccess(Access access) {
  switch (access) {
    case Access::kReadOnly:
      return coordinator::v1::READ_ONLY;
    case Access::kSharedWrite:
      return coordinator::v1::SHARED_WRITE;
    case Access::kExclusive:
      break;
  }
  return coordinator::v1::EXCLUSIVE;
}

// An older node says nothing of modes.
absl::StatusOr<VolumeMode> ReadMode(coordinator::v1::VolumeMode mode) {
  switch (mode) {
    case coordinator::v1::VOLUME_MODE_UNSPECIFIED:
      return VolumeMode::kAny;
    case coordinator::v1::FILESYSTEM:
      return VolumeMode::kFilesystem;
    case coordinator::v1::BLOCK:
      return VolumeMode::kBlock;
    default:
      return absl::InvalidArgumentError("mode: is not known to this controller");
  }
}

coordinator::v1::VolumeMode WriteMode(VolumeMode mode) {
  if (mode == VolumeMode::kFilesystem) return coordinator::v1::FILESYSTEM;
  return mode == VolumeMode::kBlock ? coordinator::v1::BLOCK : coordinator::v1::VOLUME_MODE_UNSPECIFIED;
}

// The wire's ACCESS_UNSPECIFIED cannot occur here, as the request was made by WriteAccess.
Grant ReadGrant(const coordinator::v1::AcquireRequest& request, const coordinator::v1::Grant& message) {
  Grant grant;
  grant.volume = VolumeId(request.volume_id());
  grant.node = NodeId(request.node());
  grant.access = ReadAccess(request.access()).value_or(Access::kExclusive);
  grant.generation = message.generation();
  grant.connection = FromMessage(message.connection());
  grant.serial = message.serial();
  grant.size_bytes = message.size_bytes();
  grant.durability = message.durable_writes() ? Durability::kSync : Durability::kCached;
  grant.limits = ReadLimits(message.limits());
  return grant;
}

// Durability is one bit on the wire: a third kind would need a new field, not a new value.
coordinator::v1::Grant WriteGrant(const Grant& grant) {
  coordinator::v1::Grant message;
  message.set_generation(grant.generation);
  *message.mutable_connection() = ToMessage(grant.connection);
  message.set_serial(grant.serial);
  message.set_size_bytes(grant.size_bytes);
  message.set_durable_writes(grant.durability == Durability::kSync);
  if (grant.limits.version != 0) *message.mutable_limits() = WriteLimits(grant.limits);
  return message;
}

absl::StatusOr<fencing::Heartbeat> ReadHeartbeat(const coordinator::v1::Heartbeat& message) {
  RETURN_IF_ERROR(CheckSizes(message));
  fencing::Heartbeat heartbeat;
  // The service has compared the node with the caller's token already (ReadNode).
  heartbeat.node = NodeId(message.node());
  heartbeat.boot = message.boot_id();
  heartbeat.sequence = message.sequence();
  // The wire's flag is the negation, so that a message without it means a healthy kubelet.
  heartbeat.kubelet_ok = !message.kubelet_hangs();
  heartbeat.failing = ReadVolumes(message.failing());
  heartbeat.failed = ReadVolumes(message.failed());
  heartbeat.closed = ReadVolumes(message.closed());
  heartbeat.idle = ReadVolumes(message.idle());
  heartbeat.present = ReadVolumes(message.present());
  for (const auto& [array, generation] : message.known())
    heartbeat.known[fencing::ArrayId(array)] = generation;
  return heartbeat;
}

// A heartbeat has the node's whole state, so one that is lost or reordered does no harm.
coordinator::v1::Heartbeat WriteHeartbeat(const fencing::Heartbeat& heartbeat) {
  coordinator::v1::Heartbeat message;
  message.set_node(heartbeat.node.value());
  message.set_boot_id(heartbeat.boot);
  message.set_sequence(heartbeat.sequence);
  message.set_kubelet_hangs(!heartbeat.kubelet_ok);
  for (const VolumeId& volume : heartbeat.failing) message.add_failing(volume.value());
  for (const VolumeId& volume : heartbeat.failed) message.add_failed(volume.value());
  for (const VolumeId& volume : heartbeat.closed) message.add_closed(volume.value());
  for (const VolumeId& volume : heartbeat.idle) message.add_idle(volume.value());
  for (const VolumeId& volume : heartbeat.present) message.add_present(volume.value());
  for (const auto& [array, generation] : heartbeat.known)
    (*message.mutable_known())[array.value()] = generation;
  return message;
}

// One that has far too many is not read at all: it is no node of ours, and costs nothing more.
DeviceDetails ReadDetails(const coordinator::v1::Heartbeat& message) {
  DeviceDetails details;
  if (message.details_size() > kMostDetails) return details;
  for (const auto& each : message.details()) {
    if (!IsDetailText(each.volume_id()) || !IsDetailText(each.device())) continue;
    DeviceDetail& detail = details[VolumeId(each.volume_id())];
    detail.device = each.device();
    for (const auto& path : each.paths())
      if (detail.paths.size() < kMostPaths && IsDetailText(path.portal()))
        detail.paths.push_back({path.portal(), ReadState(path.state())});
    for (const std::string& mount : each.mounts())
      if (detail.mounts.size() < kMostMounts && IsDetailText(mount)) detail.mounts.push_back(mount);
  }
  return details;
}

void WriteDetails(const DeviceDetails& details, coordinator::v1::Heartbeat* message) {
  for (const auto& [volume, detail] : details) {
    coordinator::v1::DeviceDetail* entry = message->add_details();
    entry->set_volume_id(volume.value());
    entry->set_device(detail.device);
    for (const DevicePath& path : detail.paths) {
      coordinator::v1::DeviceDetail::Path* way = entry->add_paths();
      way->set_portal(path.portal);
      way->set_state(WriteState(path.state));
    }
    for (const std::string& mount : detail.mounts) entry->add_mounts(mount);
  }
}

// The message has no node: a stream's answers are about the node that sends its heartbeats there.
FencesByArray ReadFences(const NodeId& node, const coordinator::v1::HeartbeatAnswer& message) {
  FencesByArray fences;
  for (const auto& fence : message.fences()) {
    fences[fencing::ArrayId(fence.array())] = {node, fence.generation(), ReadVolumes(fence.volume_ids())};
  }
  return fences;
}

LimitsByVolume ReadLimits(const coordinator::v1::HeartbeatAnswer& message) {
  LimitsByVolume limits;
  for (const auto& each : message.limits()) limits[VolumeId(each.volume_id())] = ReadLimits(each);
  return limits;
}

std::set<std::string> ReadRemovedArrays(const coordinator::v1::HeartbeatAnswer& message) {
  return {message.removed_arrays().begin(), message.removed_arrays().end()};
}

std::vector<std::string> ReadReplicas(const coordinator::v1::HeartbeatAnswer& message) {
  return {message.replicas().begin(), message.replicas().end()};
}

// An answer lists every fence in force and all limits, not the changes: a node may have missed any number of
// answers.
coordinator::v1::HeartbeatAnswer WriteAnswer(const FencesByArray& fences, const LimitsByVolume& limits,
                                             const std::set<std::string>& removed_arrays,
                                             const std::vector<std::string>& replicas) {
  coordinator::v1::HeartbeatAnswer message;
  for (const auto& [array, fence] : fences) {
    coordinator::v1::HeartbeatAnswer::Fence* entry = message.add_fences();
    entry->set_array(array.value());
    entry->set_generation(fence.generation);
    for (const VolumeId& volume : fence.volumes) entry->add_volume_ids(volume.value());
  }
  for (const auto& [volume, each] : limits) {
    coordinator::v1::Limits* entry = message.add_limits();
    *entry = WriteLimits(each);
    entry->set_volume_id(volume.value());
  }
  message.mutable_removed_arrays()->Assign(removed_arrays.begin(), removed_arrays.end());
  for (const std::string& replica : replicas) message.add_replicas(replica);
  return message;
}

}  // namespace lunkeeper
