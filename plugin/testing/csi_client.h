#pragma once
// A client of CSI for tests that are the same in 0.3 and 1.x: Client<V0> and Client<V1> have the same calls.
// Requests are right, with what the arguments say. Not thread-safe.

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>

#include "plugin/testing/csi_versions.h"

namespace lunkeeper::testing {

// The calls that tests make often. Paths are those of the server, whose staging folder exists.
template <class V>
class Client {
 public:
  using ControllerStub = typename V::Controller::Stub;
  using NodeStub = typename V::Node::Stub;

  Client(const std::string& socket, std::string staging_path)
      : staging(std::move(staging_path)),
        channel(grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials())),
        identity(V::Identity::NewStub(channel)),
        controller(V::Controller::NewStub(channel)),
        node(V::Node::NewStub(channel)) {}

  auto Create(const std::string& name, int64_t bytes = 16 * kMiB, int mode = kSingleWriter,
              const std::string& snapshot = "") const {
    return Ask(*controller, &ControllerStub::CreateVolume, [&](auto& request) {
      request.set_name(name);
      request.mutable_capacity_range()->set_required_bytes(bytes);
      SetMount(request.add_volume_capabilities(), mode);
      if (!snapshot.empty()) SetSource(request, snapshot);
    });
  }
  std::string MustCreate(const std::string& name, int mode = kSingleWriter) const {
    const auto made = Create(name, 16 * kMiB, mode);
    INFO(made.error);
    REQUIRE(made.code == StatusCode::OK);
    return IdOf(made->volume());
  }
  auto Delete(const std::string& id) const {
    return Ask(*controller, &ControllerStub::DeleteVolume, [&](auto& request) { request.set_volume_id(id); });
  }
  auto Snapshot(const std::string& name, const std::string& source) const {
    return Ask(*controller, &ControllerStub::CreateSnapshot, [&](auto& request) {
      request.set_name(name);
      request.set_source_volume_id(source);
    });
  }
  auto ListSnapshots(const std::string& source) const {
    return Ask(*controller, &ControllerStub::ListSnapshots,
               [&](auto& request) { request.set_source_volume_id(source); });
  }
  auto DeleteSnapshot(const std::string& id) const {
    return Ask(*controller, &ControllerStub::DeleteSnapshot,
               [&](auto& request) { request.set_snapshot_id(id); });
  }
  auto ControllerPublish(const std::string& id, const std::string& to, bool readonly = false) const {
    return Ask(*controller, &ControllerStub::ControllerPublishVolume, [&](auto& request) {
      request.set_volume_id(id);
      request.set_node_id(to);
      request.set_readonly(readonly);
      SetMount(request.mutable_volume_capability(), kSingleWriter);
    });
  }
  auto ControllerUnpublish(const std::string& id, const std::string& from) const {
    return Ask(*controller, &ControllerStub::ControllerUnpublishVolume, [&](auto& request) {
      request.set_volume_id(id);
      request.set_node_id(from);
    });
  }
  auto Validate(const std::string& id, int mode) const {
    return Ask(*controller, &ControllerStub::ValidateVolumeCapabilities, [&](auto& request) {
      request.set_volume_id(id);
      SetMount(request.add_volume_capabilities(), mode);
    });
  }
  auto Stage(const std::string& id, int mode = kSingleWriter) const {
    return Ask(*node, &NodeStub::NodeStageVolume, [&](auto& request) {
      request.set_volume_id(id);
      request.set_staging_target_path(staging);
      SetMount(request.mutable_volume_capability(), mode);
    });
  }
  auto Publish(const std::string& id, const std::string& target, int mode = kSingleWriter,
               bool readonly = false) const {
    return Ask(*node, &NodeStub::NodePublishVolume, [&](auto& request) {
      request.set_volume_id(id);
      request.set_staging_target_path(staging);
      request.set_target_path(target);
      request.set_readonly(readonly);
      SetMount(request.mutable_volume_capability(), mode);
    });
  }
  auto Unpublish(const std::string& id, const std::string& target) const {
    return Ask(*node, &NodeStub::NodeUnpublishVolume, [&](auto& request) {
      request.set_volume_id(id);
      request.set_target_path(target);
    });
  }
  auto Unstage(const std::string& id) const {
    return Ask(*node, &NodeStub::NodeUnstageVolume, [&](auto& request) {
      request.set_volume_id(id);
      request.set_staging_target_path(staging);
    });
  }
  auto List(int most, const std::string& token) const {
    return Ask(*controller, &ControllerStub::ListVolumes, [&](auto& request) {
      request.set_max_entries(most);
      request.set_starting_token(token);
    });
  }
  std::string NodeId() const { return Ask(*node, &NodeStub::NodeGetInfo, kNoFields)->node_id(); }

  const std::string staging;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<typename V::Identity::Stub> identity;
  const std::unique_ptr<ControllerStub> controller;
  const std::unique_ptr<NodeStub> node;
};

}  // namespace lunkeeper::testing
