// CSI gives one wrong path three meanings: at Stage and Publish it is a mistake of the caller, at Unstage and
// Unpublish it says that nothing is left to undo, and at GetVolumeStats and Expand the volume is not found.
// Hence three functions over ResolvePath.
#include "node/node_request.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/status_macros.h"
#include "devices/array/publish_context.h"
#include "node/paths.h"

namespace lunkeeper {
namespace {

constexpr size_t kLongestId = 128;  // CSI, "Size Limits"

absl::Status InvalidField(const std::string& what) { return absl::InvalidArgumentError(what); }

std::map<std::string, std::string> ToMap(const google::protobuf::Map<std::string, std::string>& map) {
  return {map.begin(), map.end()};
}

template <class Request>
absl::StatusOr<Capability> RequireCapability(const Request& request) {
  if (!request.has_volume_capability()) return InvalidField("volume_capability: is required");
  return ParseCapability(request.volume_capability(), ToMap(request.volume_context()));
}

template <class Request>
absl::StatusOr<std::optional<Grant>> ParseContext(const VolumeId& volume, const Request& request) {
  // Kubernetes attaches nothing: there the node takes the grant itself.
  if (request.publish_context().empty()) return std::nullopt;
  ASSIGN_OR_RETURN(Grant grant, FromPublishContext(volume, ToMap(request.publish_context())));
  return std::optional<Grant>(std::move(grant));
}

// A path whose parent the orchestrator has made.
absl::StatusOr<std::string> ParsePath(const std::string& path, const char* field) {
  absl::StatusOr<std::string> resolved = ResolvePath(path, field);
  if (absl::IsNotFound(resolved.status())) return InvalidField(std::string(resolved.status().message()));
  return resolved;
}

// A path where a volume is expected to be: one that cannot be is not found, but an absent one is an error.
template <class Request>
absl::StatusOr<std::string> ParseVolumePath(const Request& request) {
  const std::string& path = request.volume_path();
  if (path.empty() || path.size() > 4095)
    return InvalidField("volume_path: is required, with at most 4095 bytes");
  absl::StatusOr<std::string> resolved = ResolvePath(path, "volume_path");
  if (!resolved.ok()) return absl::NotFoundError(resolved.status().message());
  // Optional, and not needed: the mount table says where the volume is staged.
  const std::string& staging = request.staging_target_path();
  if (!staging.empty()) RETURN_IF_ERROR(CheckPath(staging, "staging_target_path"));
  return resolved;
}

}  // namespace

absl::StatusOr<VolumeId> ParseVolumeId(const std::string& id) {
  if (id.empty()) return InvalidField("volume_id: is required");
  if (id.size() > kLongestId) return InvalidField("volume_id: is longer than 128 bytes");
  // An id becomes part of paths and of log lines. Whether such a volume exists, the array knows.
  const bool plain =
      std::all_of(id.begin(), id.end(), [](char c) { return absl::ascii_isgraph(c) && c != '/'; });
  if (!plain) return InvalidField("volume_id: has a slash or characters that are not printable");
  return VolumeId(id);
}

absl::StatusOr<StageRequest> ParseStageRequest(const csi::v1::NodeStageVolumeRequest& request,
                                               absl::Time deadline) {
  StageRequest stage;
  stage.deadline = deadline;
  ASSIGN_OR_RETURN(stage.volume, ParseVolumeId(request.volume_id()));
  ASSIGN_OR_RETURN(stage.capability, RequireCapability(request));
  ASSIGN_OR_RETURN(stage.staging_path, ParsePath(request.staging_target_path(), "staging_target_path"));
  ASSIGN_OR_RETURN(stage.published, ParseContext(stage.volume, request));
  return stage;
}

absl::StatusOr<PublishRequest> ParsePublishRequest(const csi::v1::NodePublishVolumeRequest& request,
                                                   absl::Time deadline) {
  PublishRequest publish;
  publish.deadline = deadline;
  publish.read_only = request.readonly();
  ASSIGN_OR_RETURN(publish.volume, ParseVolumeId(request.volume_id()));
  ASSIGN_OR_RETURN(publish.capability, RequireCapability(request));
  ASSIGN_OR_RETURN(publish.target_path, ParsePath(request.target_path(), "target_path"));
  // CSI: FAILED_PRECONDITION, since the volume was never staged, and not INVALID_ARGUMENT.
  if (request.staging_target_path().empty()) {
    return absl::FailedPreconditionError("staging_target_path: is required; stage the volume first");
  }
  ASSIGN_OR_RETURN(publish.staging_path, ParsePath(request.staging_target_path(), "staging_target_path"));
  ASSIGN_OR_RETURN(publish.published, ParseContext(publish.volume, request));
  return publish;
}

absl::StatusOr<ExpandRequest> ParseExpandRequest(const csi::v1::NodeExpandVolumeRequest& request,
                                                 absl::Time deadline) {
  ExpandRequest expand;
  expand.deadline = deadline;
  ASSIGN_OR_RETURN(expand.volume, ParseVolumeId(request.volume_id()));
  const int64_t required = request.capacity_range().required_bytes();
  const int64_t limit = request.capacity_range().limit_bytes();
  if (required < 0 || limit < 0) return InvalidField("capacity_range: must not be negative");
  if (limit != 0 && limit < required)
    return InvalidField("capacity_range: limit_bytes is below required_bytes");
  expand.required_bytes = static_cast<uint64_t>(required);
  expand.limit_bytes = static_cast<uint64_t>(limit);
  // Checked and not used: what is mounted there says what it is.
  if (request.has_volume_capability()) {
    RETURN_IF_ERROR(ParseCapability(request.volume_capability(), {}).status());
  }
  ASSIGN_OR_RETURN(expand.path, ParseVolumePath(request));
  return expand;
}

absl::StatusOr<HealthRequest> ParseHealthRequest(const csi::v1::NodeGetVolumeHealthRequest& request) {
  HealthRequest parsed;
  ASSIGN_OR_RETURN(parsed.volume, ParseVolumeId(request.volume_id()));
  const std::string& published = request.volume_publish_path();
  if (!published.empty()) {
    ASSIGN_OR_RETURN(parsed.published, ParseUnmountPath(published, "volume_publish_path"));
  }
  const std::string& staged = request.staging_target_path();
  if (!staged.empty()) {
    ASSIGN_OR_RETURN(parsed.staged, ParseUnmountPath(staged, "staging_target_path"));
  }
  return parsed;
}

absl::StatusOr<std::string> ParseUsagePath(const csi::v1::NodeGetVolumeStatsRequest& request) {
  return ParseVolumePath(request);
}

absl::StatusOr<std::string> ParseUnmountPath(const std::string& path, const char* field) {
  absl::StatusOr<std::string> resolved = ResolvePath(path, field);
  if (absl::IsNotFound(resolved.status())) return path;
  return resolved;
}

}  // namespace lunkeeper
