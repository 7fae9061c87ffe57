#pragma once
// Publish and unpublish: a staged volume is bound into a pod's directory, and taken out of it. Knows no
// protobuf. Thread-safe for different volumes; for one volume, one call at a time. Every call may be repeated
// after a crash at any line. Failure: as CSI's tables for NodePublishVolume and NodeUnpublishVolume say, and
// as a stage for a file system that has to be checked; the message names the volume and says what to do.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/datapath/initiator.h"
#include "devices/filesystem/filesystem.h"
#include "devices/filesystem/mounter.h"
#include "node/capability.h"
#include "node/device_mounts.h"
#include "node/grant_source.h"
#include "node/stager.h"

namespace lunkeeper {

struct PublishRequest {
  VolumeId volume;
  std::string staging_path;
  std::string target_path;
  Capability capability;
  bool read_only = false;
  std::optional<Grant> published;  // from publish_context
  absl::Time deadline;
};

// What becomes of a target path, of which CSI 1.x says that the plugin makes it, and 0.3 that the
// orchestrator does.
enum class TargetPath { kRemoved, kKept };

class Publisher {
 public:
  // `grants` may be null: then nobody is asked whether the node still has its grant. All outlive this.
  // `stages_unstaged`: NodeServiceOptions::stages_for_publish.
  Publisher(Initiator& initiator, Filesystem& filesystem, Mounter& mounter, GrantSource* grants,
            Stager& stager, bool stages_unstaged)
      : stages_unstaged_(stages_unstaged),
        initiator_(initiator),
        filesystem_(filesystem),
        mounter_(mounter),
        grants_(grants),
        stager_(stager),
        device_mounts_(initiator, mounter) {}

  absl::Status PublishVolume(const PublishRequest& request);
  absl::Status UnpublishVolume(const VolumeId& volume, const std::string& target_path, TargetPath afterwards,
                               absl::Time deadline);

 private:
  absl::Status StageUnstaged(const PublishRequest& request);
  absl::StatusOr<Device> FindLiveDevice(const PublishRequest& request);
  absl::Status StageUnmounted(const PublishRequest& request, const Device& device);
  absl::Status ReopenClosed(const PublishRequest& request, const Device& device,
                            const std::vector<Mount>& mounts);
  absl::Status CheckGranted(const PublishRequest& request, const Device& device);
  absl::Status CheckStagedFor(const PublishRequest& request, const Device& device,
                              const std::vector<Mount>& mounts);
  absl::Status CheckOnlyTarget(const PublishRequest& request, const Device& device,
                               const std::vector<Mount>& mounts);
  absl::Status CheckPublished(const PublishRequest& request, const Device& device, const Mount& there);
  absl::Status BindTarget(const PublishRequest& request, const Device& device);
  absl::Status SettleBlockAccess(const Device& device);
  absl::Status SettleRemaining(const VolumeId& volume);

  const bool stages_unstaged_;
  Initiator& initiator_;
  Filesystem& filesystem_;
  Mounter& mounter_;
  GrantSource* const grants_;
  Stager& stager_;
  DeviceMounts device_mounts_;
};

}  // namespace lunkeeper
