#pragma once
// What the controller's tests share: a service over a fake array, requests that are right, and one-line
// calls.

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "controller/controller_service.h"
#include "devices/array/testing/fake_array.h"

namespace lunkeeper {

inline const std::string kNodeA = "a.00000000000000aa";
inline const std::string kNodeB = "b.00000000000000bb";
inline constexpr int64_t kTestMiB = 1 << 20;

using Mode = csi::v1::VolumeCapability::AccessMode;

inline csi::v1::VolumeCapability Mount(Mode::Mode mode = Mode::SINGLE_NODE_WRITER) {
  csi::v1::VolumeCapability capability;
  capability.mutable_mount();
  capability.mutable_access_mode()->set_mode(mode);
  return capability;
}

inline csi::v1::VolumeCapability Block(Mode::Mode mode = Mode::SINGLE_NODE_WRITER) {
  csi::v1::VolumeCapability capability;
  capability.mutable_block();
  capability.mutable_access_mode()->set_mode(mode);
  return capability;
}

inline csi::v1::CreateVolumeRequest CreateRequest(const std::string& name, int64_t bytes = 16 * kTestMiB) {
  csi::v1::CreateVolumeRequest request;
  request.set_name(name);
  request.mutable_capacity_range()->set_required_bytes(bytes);
  *request.add_volume_capabilities() = Mount();
  return request;
}

inline csi::v1::CreateVolumeRequest CreateFor(const std::string& name,
                                              const std::vector<csi::v1::VolumeCapability>& capabilities) {
  csi::v1::CreateVolumeRequest request = CreateRequest(name);
  request.clear_volume_capabilities();
  for (const csi::v1::VolumeCapability& each : capabilities) *request.add_volume_capabilities() = each;
  return request;
}

inline csi::v1::ControllerPublishVolumeRequest PublishRequest(const std::string& volume,
                                                              const std::string& node) {
  csi::v1::ControllerPublishVolumeRequest request;
  request.set_volume_id(volume);
  request.set_node_id(node);
  *request.mutable_volume_capability() = Mount();
  return request;
}

struct ControllerFixture {
  FakeArray array{{.name = "a1"}};
  std::unique_ptr<Arrays> arrays = Only(&array);
  std::unique_ptr<csi::v1::Controller::Service> service = MakeControllerService(*arrays, {});

  // As if there were this array alone; its owner keeps it.
  static std::unique_ptr<Arrays> Only(Array* array) {
    return MakeOneArray("a1", std::shared_ptr<Array>(std::shared_ptr<void>(), array));
  }

  csi::v1::CreateVolumeResponse response;
  csi::v1::ControllerPublishVolumeResponse published;

  grpc::Status Create(const csi::v1::CreateVolumeRequest& request) {
    response.Clear();
    return service->CreateVolume(nullptr, &request, &response);
  }
  std::string MustCreate(const csi::v1::CreateVolumeRequest& request) {
    const grpc::Status status = Create(request);
    INFO(status.error_message());
    REQUIRE(status.ok());
    return response.volume().volume_id();
  }
  grpc::Status Delete(const std::string& volume) {
    csi::v1::DeleteVolumeRequest request;
    request.set_volume_id(volume);
    csi::v1::DeleteVolumeResponse deleted;
    return service->DeleteVolume(nullptr, &request, &deleted);
  }
  grpc::Status Publish(const csi::v1::ControllerPublishVolumeRequest& request) {
    published.Clear();
    return service->ControllerPublishVolume(nullptr, &request, &published);
  }
  grpc::Status Unpublish(const std::string& volume, const std::string& node) {
    csi::v1::ControllerUnpublishVolumeRequest request;
    request.set_volume_id(volume);
    request.set_node_id(node);
    csi::v1::ControllerUnpublishVolumeResponse unpublished;
    return service->ControllerUnpublishVolume(nullptr, &request, &unpublished);
  }
  bool Confirms(const std::string& volume, const csi::v1::VolumeCapability& capability) {
    csi::v1::ValidateVolumeCapabilitiesRequest request;
    request.set_volume_id(volume);
    *request.add_volume_capabilities() = capability;
    csi::v1::ValidateVolumeCapabilitiesResponse answer;
    REQUIRE(service->ValidateVolumeCapabilities(nullptr, &request, &answer).ok());
    CHECK(answer.has_confirmed() == answer.message().empty());
    return answer.has_confirmed();
  }
  csi::v1::ControllerGetVolumeResponse Get(const std::string& volume) {
    csi::v1::ControllerGetVolumeRequest request;
    request.set_volume_id(volume);
    csi::v1::ControllerGetVolumeResponse got;
    REQUIRE(service->ControllerGetVolume(nullptr, &request, &got).ok());
    return got;
  }
  grpc::Status Snapshot(const std::string& name, const std::string& source,
                        csi::v1::Snapshot* out = nullptr) {
    csi::v1::CreateSnapshotRequest request;
    request.set_name(name);
    request.set_source_volume_id(source);
    csi::v1::CreateSnapshotResponse taken;
    const grpc::Status status = service->CreateSnapshot(nullptr, &request, &taken);
    if (out != nullptr) *out = taken.snapshot();
    return status;
  }
  grpc::Status Expand(const std::string& volume, int64_t required, int64_t limit, int64_t* bytes) {
    csi::v1::ControllerExpandVolumeRequest request;
    request.set_volume_id(volume);
    request.mutable_capacity_range()->set_required_bytes(required);
    request.mutable_capacity_range()->set_limit_bytes(limit);
    csi::v1::ControllerExpandVolumeResponse expanded;
    const grpc::Status status = service->ControllerExpandVolume(nullptr, &request, &expanded);
    *bytes = expanded.capacity_bytes();
    return status;
  }
};

}  // namespace lunkeeper
