#pragma once
// A Node service over fakes, with real directories under a temporary one, for the tests. Not thread-safe
// itself.

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/testing/test_host.h"
#include "devices/array/testing/fake_array.h"
#include "devices/datapath/testing/fake_initiator.h"
#include "devices/filesystem/testing/fake_filesystem.h"
#include "devices/filesystem/testing/fake_mounter.h"
#include "node/array_grant_source.h"
#include "node/node_service.h"

namespace lunkeeper {

using AccessMode = csi::v1::VolumeCapability::AccessMode;

class NodeFixture {
 public:
  NodeFixture();

  // Of 64 MiB.
  VolumeId CreateVolume(const std::string& name);
  static csi::v1::VolumeCapability Capability(AccessMode::Mode mode, bool block = false,
                                              const std::string& type = "");
  csi::v1::NodeStageVolumeRequest StageRequest() const;
  csi::v1::NodePublishVolumeRequest PublishRequest() const;

  grpc::StatusCode Stage() { return Stage(StageRequest()); }
  grpc::StatusCode Stage(const csi::v1::NodeStageVolumeRequest& request) {
    csi::v1::NodeStageVolumeResponse response;
    return Keep(service->NodeStageVolume(nullptr, &request, &response));
  }
  grpc::StatusCode Publish() { return Publish(PublishRequest()); }
  grpc::StatusCode Publish(const csi::v1::NodePublishVolumeRequest& request) {
    csi::v1::NodePublishVolumeResponse response;
    return Keep(service->NodePublishVolume(nullptr, &request, &response));
  }
  grpc::StatusCode Unpublish() { return Unpublish(volume.value(), target); }
  grpc::StatusCode Unpublish(const std::string& id, const std::string& path) {
    csi::v1::NodeUnpublishVolumeRequest request;
    csi::v1::NodeUnpublishVolumeResponse response;
    request.set_volume_id(id);
    request.set_target_path(path);
    return Keep(service->NodeUnpublishVolume(nullptr, &request, &response));
  }
  grpc::StatusCode Unstage() { return Unstage(volume.value(), staging); }
  grpc::StatusCode Unstage(const std::string& id, const std::string& path) {
    csi::v1::NodeUnstageVolumeRequest request;
    csi::v1::NodeUnstageVolumeResponse response;
    request.set_volume_id(id);
    request.set_staging_target_path(path);
    return Keep(service->NodeUnstageVolume(nullptr, &request, &response));
  }
  grpc::StatusCode Stats(const std::string& id, const std::string& path) {
    csi::v1::NodeGetVolumeStatsRequest request;
    request.set_volume_id(id);
    request.set_volume_path(path);
    stats.Clear();
    return Keep(service->NodeGetVolumeStats(nullptr, &request, &stats));
  }
  grpc::StatusCode Expand(const csi::v1::NodeExpandVolumeRequest& request) {
    expanded.Clear();
    return Keep(service->NodeExpandVolume(nullptr, &request, &expanded));
  }
  csi::v1::NodeExpandVolumeRequest ExpandRequest() const {
    csi::v1::NodeExpandVolumeRequest request;
    request.set_volume_id(volume.value());
    request.set_volume_path(target);
    return request;
  }

  bool Granted() { return !array.ListGrants({volume, node})->empty(); }
  bool Attached() { return initiator.Find(volume)->has_value(); }
  std::vector<Mount> Mounts() { return mounter.Mounts().value(); }
  size_t MountCount() { return Mounts().size(); }
  // Nothing of any volume is left on this node.
  bool IsClean() { return !Granted() && !Attached() && MountCount() == 0; }

  const NodeId node{"worker-1.0123456789abcdef"};
  const testing::TempDir temporary;
  const std::filesystem::path root = temporary.path();
  const std::string staging = root / "staging";
  const std::string target = root / "pods/target";
  const std::string other_target = root / "pods/other";

  FakeArray array;
  FakeMounter mounter;
  FakeFilesystem filesystem;
  FakeInitiator initiator{root / "devices",
                          [this](const std::string& path) { return mounter.IsMounted(path); }};
  std::unique_ptr<GrantSource> grants = MakeArrayGrantSource(array, node);
  std::unique_ptr<NodeService> service = MakeService(grants.get());

  VolumeId volume;
  csi::v1::VolumeCapability capability = Capability(AccessMode::SINGLE_NODE_WRITER);
  csi::v1::NodeGetVolumeStatsResponse stats;
  csi::v1::NodeExpandVolumeResponse expanded;
  std::string message;  // of the last status

  std::unique_ptr<NodeService> MakeService(GrantSource* source,
                                           absl::Duration first_wait = absl::Seconds(10)) {
    NodeServiceOptions options{.node = node, .topology = {ReachableArray("main")}, .first_wait = first_wait};
    return std::make_unique<NodeService>(options, initiator, initiator, filesystem, mounter, source);
  }

 private:
  grpc::StatusCode Keep(const grpc::Status& status) {
    message = status.error_message();
    return status.error_code();
  }
};

}  // namespace lunkeeper
