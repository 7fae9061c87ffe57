#pragma once
// From the requests of CSI's Node service to those of node/: checks every field that came from outside. Pure
// but for symlinks in paths, which are resolved; thread-safe. Failure: INVALID_ARGUMENT, naming the field and
// what is allowed, unless a comment says more.

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "csi/v1/csi.pb.h"
#include "node/mounted_volumes.h"
#include "node/publisher.h"
#include "node/stager.h"
#include "node/volume_health.h"

namespace lunkeeper {

absl::StatusOr<VolumeId> ParseVolumeId(const std::string& id);

absl::StatusOr<StageRequest> ParseStageRequest(const csi::v1::NodeStageVolumeRequest& request,
                                               absl::Time deadline);
// FAILED_PRECONDITION also without a staging path: such a volume was never staged.
absl::StatusOr<PublishRequest> ParsePublishRequest(const csi::v1::NodePublishVolumeRequest& request,
                                                   absl::Time deadline);
// NOT_FOUND for a path where no volume can be.
absl::StatusOr<ExpandRequest> ParseExpandRequest(const csi::v1::NodeExpandVolumeRequest& request,
                                                 absl::Time deadline);
// Its paths may be empty, and need not be there.
absl::StatusOr<HealthRequest> ParseHealthRequest(const csi::v1::NodeGetVolumeHealthRequest& request);
absl::StatusOr<std::string> ParseUsagePath(const csi::v1::NodeGetVolumeStatsRequest& request);

// A path to unmount, of Unstage or Unpublish, which may be gone with its parent: then it is returned as it
// is, and nothing will be found there.
absl::StatusOr<std::string> ParseUnmountPath(const std::string& path, const char* field);

}  // namespace lunkeeper
