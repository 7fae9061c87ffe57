#pragma once
// The CSI Node service: each RPC checks its request (node_request.h), takes the volume's lock, and calls the
// class that does the work. Thread-safe. A second call for a volume that another call is working on is
// ABORTED. What it is given outlives it.

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/keyed_lock.h"
#include "csi/v1/csi.grpc.pb.h"
#include "node/leftover_sweeper.h"
#include "node/mounted_volumes.h"
#include "node/publisher.h"
#include "node/stager.h"
#include "node/volume_health.h"

namespace lunkeeper {

struct NodeServiceOptions {
  NodeId node;                // from LoadNodeId
  int64_t max_volumes = 200;  // what the data path's memory is made for
  // The time a failed device is left to the orchestrator, before RemoveForgotten acts.
  absl::Duration grace_period = absl::Seconds(10);
  // The time after its last call that a device which works, and which no pod has, is left to the
  // orchestrator. For kubelet alone: others may stage long before they publish.
  absl::Duration idle_period = absl::InfiniteDuration();
  // Whether a publish stages a volume that has no device. For kubelet alone: it has staged the volume, and
  // does not do so again: RemoveForgotten has unstaged it meanwhile.
  bool stages_for_publish = false;
  // A controller notices within this time that a caller has gone.
  absl::Duration doubt = absl::Seconds(30);
  std::map<std::string, std::string> topology;  // segments; see ReachableArray
  // The longest wait of the first of several calls to stage a volume that another node has. Orchestrators
  // show which node that is only when a call ends. Later calls wait until their deadline.
  absl::Duration first_wait = absl::Seconds(10);
};

// The topology segment of a node that reaches an array.
std::pair<std::string, std::string> ReachableArray(const std::string& array_name);

class NodeService final : public csi::v1::Node::Service {
 public:
  // `prober` is of the same devices as `initiator`, and does not wait long for a data path that hangs.
  // `grants` may be null; see Stager.
  NodeService(NodeServiceOptions options, Initiator& initiator, Initiator& prober, Filesystem& filesystem,
              Mounter& mounter, GrantSource* grants);

  // Releases grants that nobody uses: after a start, and after stages that failed. At other times it does
  // nothing. To be called every few seconds, from one thread; takes a few seconds at most when the source of
  // grants does not answer.
  void ReturnUnusedGrants() { sweeper_.ReturnUnusedGrants(); }

  // Removes what the orchestrator has forgotten: devices that failed for good (fenced, or away for too long),
  // and idle ones. To be called every few seconds, from the same thread.
  void RemoveForgotten() { sweeper_.RemoveForgotten(); }

  grpc::Status NodeStageVolume(grpc::ServerContext* context, const csi::v1::NodeStageVolumeRequest* request,
                               csi::v1::NodeStageVolumeResponse* response) override;
  grpc::Status NodeUnstageVolume(grpc::ServerContext* context,
                                 const csi::v1::NodeUnstageVolumeRequest* request,
                                 csi::v1::NodeUnstageVolumeResponse* response) override;
  grpc::Status NodePublishVolume(grpc::ServerContext* context,
                                 const csi::v1::NodePublishVolumeRequest* request,
                                 csi::v1::NodePublishVolumeResponse* response) override;
  grpc::Status NodeUnpublishVolume(grpc::ServerContext* context,
                                   const csi::v1::NodeUnpublishVolumeRequest* request,
                                   csi::v1::NodeUnpublishVolumeResponse* response) override;
  // For CSI 0.3, in which the target path is the orchestrator's to remove.
  grpc::Status UnpublishKeepingTarget(grpc::ServerContext* context,
                                      const csi::v1::NodeUnpublishVolumeRequest* request,
                                      csi::v1::NodeUnpublishVolumeResponse* response);
  grpc::Status NodeGetVolumeStats(grpc::ServerContext* context,
                                  const csi::v1::NodeGetVolumeStatsRequest* request,
                                  csi::v1::NodeGetVolumeStatsResponse* response) override;
  grpc::Status NodeGetVolumeHealth(grpc::ServerContext* context,
                                   const csi::v1::NodeGetVolumeHealthRequest* request,
                                   csi::v1::NodeGetVolumeHealthResponse* response) override;
  grpc::Status NodeGetStorageHealth(grpc::ServerContext* context,
                                    const csi::v1::NodeGetStorageHealthRequest* request,
                                    csi::v1::NodeGetStorageHealthResponse* response) override;
  grpc::Status NodeExpandVolume(grpc::ServerContext* context, const csi::v1::NodeExpandVolumeRequest* request,
                                csi::v1::NodeExpandVolumeResponse* response) override;
  grpc::Status NodeGetCapabilities(grpc::ServerContext* context,
                                   const csi::v1::NodeGetCapabilitiesRequest* request,
                                   csi::v1::NodeGetCapabilitiesResponse* response) override;
  grpc::Status NodeGetInfo(grpc::ServerContext* context, const csi::v1::NodeGetInfoRequest* request,
                           csi::v1::NodeGetInfoResponse* response) override;

 private:
  // ABORTED: another call is working on the volume.
  absl::StatusOr<KeyedLock::Guard> LockVolume(const VolumeId& volume);
  absl::Duration LongestWait(const VolumeId& volume);
  absl::Status Unpublish(const csi::v1::NodeUnpublishVolumeRequest& request, TargetPath afterwards,
                         absl::Time deadline);

  const NodeServiceOptions options_;
  KeyedLock locks_;  // by volume id
  Stager stager_;
  Publisher publisher_;
  MountedVolumes mounted_;
  VolumeHealth health_;
  LeftoverSweeper sweeper_;

  absl::Mutex mutex_;
  // Volumes whose last stage ended by saying which node has them.
  std::set<VolumeId> reported_holder_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
