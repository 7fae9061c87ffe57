#pragma once
// The CSI Node service: checks each request, calls Volumes, answers. Thread-safe. A second call for a volume
// that is being worked on is ABORTED. What it is given outlives it.

#include <map>
#include <set>
#include <string>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/keyed_lock.h"
#include "csi/v1/csi.grpc.pb.h"
#include "node/volumes.h"

namespace lunkeeper {

struct NodeServiceOptions {
  NodeId node;                                      // from LoadNodeId
  int64_t max_volumes = 200;                        // what the data path's memory is made for
  absl::Duration grace_period = absl::Seconds(10);  // with the orchestrator, before RemoveForgotten acts
  std::map<std::string, std::string> topology;      // segments; see ReachableArray
  // How long the first of several calls to stage a volume waits for others to let go of it: orchestrators
  // show who has it only when a call ends. Those after it wait as long as they may.
  absl::Duration first_wait = absl::Seconds(10);
};

// The topology segment of a node that reaches an array.
std::pair<std::string, std::string> ReachableArray(const std::string& array_name);

class NodeService final : public csi::v1::Node::Service {
 public:
  // `grants` may be null; see Volumes.
  NodeService(NodeServiceOptions options, Initiator& initiator, Filesystem& filesystem, Mounter& mounter,
              GrantSource* grants);

  // Gives back grants that nobody uses: taken for a call that failed, was given up or was killed, after which
  // nobody may ever ask for the volume again. Once at the start and, after a stage that failed, for as long
  // as its grant might still come; at other times it does nothing. To be called every few seconds; takes a
  // few seconds at most when the source of grants does not answer.
  void ReturnUnusedGrants();

  // Takes away what the orchestrator has forgotten of devices that failed for good: fenced, or away for too
  // long. To be called every few seconds, from one thread; see Volumes::Forgotten.
  void RemoveForgotten();

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
  grpc::Status NodeGetVolumeStats(grpc::ServerContext* context,
                                  const csi::v1::NodeGetVolumeStatsRequest* request,
                                  csi::v1::NodeGetVolumeStatsResponse* response) override;
  grpc::Status NodeExpandVolume(grpc::ServerContext* context, const csi::v1::NodeExpandVolumeRequest* request,
                                csi::v1::NodeExpandVolumeResponse* response) override;
  grpc::Status NodeGetCapabilities(grpc::ServerContext* context,
                                   const csi::v1::NodeGetCapabilitiesRequest* request,
                                   csi::v1::NodeGetCapabilitiesResponse* response) override;
  grpc::Status NodeGetInfo(grpc::ServerContext* context, const csi::v1::NodeGetInfoRequest* request,
                           csi::v1::NodeGetInfoResponse* response) override;

 private:
  // A controller notices within this time that a caller has gone.
  static constexpr absl::Duration kDoubt = absl::Seconds(30);

  absl::Status Stage(StageRequest request);

  const NodeServiceOptions options_;
  Volumes volumes_;
  KeyedLock locks_;
  std::map<VolumeId, absl::Time> forgotten_since_;  // RemoveForgotten's own

  absl::Mutex mutex_;
  std::set<VolumeId> reported_ ABSL_GUARDED_BY(mutex_);  // whose last stage said who has it
  // Until then, a grant that nobody waits for may still come.
  absl::Time in_doubt_until_ ABSL_GUARDED_BY(mutex_) = absl::Now() + kDoubt;
};

}  // namespace lunkeeper
