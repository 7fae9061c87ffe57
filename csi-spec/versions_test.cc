// CSI 0.3 and 1.x, and kubelet's registration, in one program and on one server: nothing of one is taken for
// the other.

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "csi/v0/csi.grpc.pb.h"
#include "csi/v1/csi.grpc.pb.h"
#include "registration/registration.grpc.pb.h"

namespace lunkeeper {
namespace {

class IdentityV0 final : public csi::v0::Identity::Service {
  grpc::Status GetPluginInfo(grpc::ServerContext*, const csi::v0::GetPluginInfoRequest*,
                             csi::v0::GetPluginInfoResponse* response) override {
    response->set_name("speaks 0.3");
    return grpc::Status::OK;
  }
};

class IdentityV1 final : public csi::v1::Identity::Service {
  grpc::Status GetPluginInfo(grpc::ServerContext*, const csi::v1::GetPluginInfoRequest*,
                             csi::v1::GetPluginInfoResponse* response) override {
    response->set_name("speaks 1.13");
    return grpc::Status::OK;
  }
};

template <class Identity, class Request, class Response>
std::string AskName(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  Response response;
  const grpc::Status status = Identity::NewStub(channel)->GetPluginInfo(&context, Request(), &response);
  return status.ok() ? response.name() : status.error_message();
}

TEST_CASE("one server answers orchestrators of both versions") {
  IdentityV0 v0;
  IdentityV1 v1;
  grpc::ServerBuilder builder;
  builder.RegisterService(&v0);
  builder.RegisterService(&v1);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto channel = server->InProcessChannel({});
  CHECK(AskName<csi::v0::Identity, csi::v0::GetPluginInfoRequest, csi::v0::GetPluginInfoResponse>(channel) ==
        "speaks 0.3");
  CHECK(AskName<csi::v1::Identity, csi::v1::GetPluginInfoRequest, csi::v1::GetPluginInfoResponse>(channel) ==
        "speaks 1.13");
  server->Shutdown();
}

TEST_CASE("a request of 0.3 survives the wire") {
  csi::v0::CreateVolumeRequest sent;
  sent.set_name("pvc-1");
  (*sent.mutable_controller_create_secrets())["user"] = "u";
  sent.add_volume_capabilities()->mutable_mount()->set_fs_type("xfs");
  csi::v0::CreateVolumeRequest received;
  REQUIRE(received.ParseFromString(sent.SerializeAsString()));
  CHECK(received.DebugString() == sent.DebugString());
  CHECK(received.volume_capabilities(0).mount().fs_type() == "xfs");
}

TEST_CASE("a request of 1.13 survives the wire") {
  csi::v1::CreateVolumeRequest sent;
  sent.set_name("pvc-1");
  sent.mutable_capacity_range()->set_required_bytes(int64_t{1} << 40);
  sent.mutable_volume_content_source()->mutable_snapshot()->set_snapshot_id("s1");
  csi::v1::CreateVolumeRequest received;
  REQUIRE(received.ParseFromString(sent.SerializeAsString()));
  CHECK(received.DebugString() == sent.DebugString());
  CHECK(received.volume_content_source().snapshot().snapshot_id() == "s1");
}

TEST_CASE("a plugin's registration survives the wire") {
  pluginregistration::PluginInfo sent;
  sent.set_type("CSIPlugin");
  sent.add_supported_versions("1.0.0");
  pluginregistration::PluginInfo received;
  REQUIRE(received.ParseFromString(sent.SerializeAsString()));
  CHECK(received.DebugString() == sent.DebugString());
}

TEST_CASE("secrets can be told from other fields at run time") {
  const auto* request = csi::v1::NodeStageVolumeRequest::descriptor();
  CHECK(request->FindFieldByName("secrets")->options().GetExtension(csi::v1::csi_secret));
  CHECK_FALSE(request->FindFieldByName("volume_context")->options().GetExtension(csi::v1::csi_secret));
}

}  // namespace
}  // namespace lunkeeper
