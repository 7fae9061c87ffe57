#include "node/testing/node_fixture.h"

namespace lunkeeper {

NodeFixture::NodeFixture() {
  std::filesystem::create_directories(staging);
  std::filesystem::create_directories(root / "pods");
  volume = CreateVolume("pvc-1");
  initiator.SetLunSize([this](const VolumeId& id) -> absl::StatusOr<uint64_t> {
    const auto found = array.GetVolume(id);
    if (!found.ok()) return found.status();
    return found->spec.size_bytes;
  });
}

VolumeId NodeFixture::CreateVolume(const std::string& name) {
  VolumeSpec spec;
  spec.name = name;
  spec.size_bytes = 64 << 20;
  return array.CreateVolume(spec)->id;
}

csi::v1::VolumeCapability NodeFixture::Capability(AccessMode::Mode mode, bool block,
                                                  const std::string& type) {
  csi::v1::VolumeCapability capability;
  capability.mutable_access_mode()->set_mode(mode);
  if (block) {
    capability.mutable_block();
  } else {
    capability.mutable_mount()->set_fs_type(type);
  }
  return capability;
}

csi::v1::NodeStageVolumeRequest NodeFixture::StageRequest() const {
  csi::v1::NodeStageVolumeRequest request;
  request.set_volume_id(volume.value());
  request.set_staging_target_path(staging);
  *request.mutable_volume_capability() = capability;
  return request;
}

csi::v1::NodePublishVolumeRequest NodeFixture::PublishRequest() const {
  csi::v1::NodePublishVolumeRequest request;
  request.set_volume_id(volume.value());
  request.set_staging_target_path(staging);
  request.set_target_path(target);
  *request.mutable_volume_capability() = capability;
  return request;
}

}  // namespace lunkeeper
