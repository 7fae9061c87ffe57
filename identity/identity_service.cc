#include "identity/identity_service.h"

#include <string>
#include <utility>

#include "plugin/base/log.h"

namespace lunkeeper {
namespace {

using csi::v1::PluginCapability;

class IdentityService final : public csi::v1::Identity::Service {
 public:
  IdentityService(IdentityOptions options, std::function<absl::Status()> ready)
      : options_(options), ready_(std::move(ready)) {}

  grpc::Status GetPluginInfo(grpc::ServerContext*, const csi::v1::GetPluginInfoRequest*,
                             csi::v1::GetPluginInfoResponse* response) override {
    response->set_name(kDriverName);
    response->set_vendor_version(LUNKEEPER_VERSION);
    return grpc::Status::OK;
  }

  grpc::Status GetPluginCapabilities(grpc::ServerContext*, const csi::v1::GetPluginCapabilitiesRequest*,
                                     csi::v1::GetPluginCapabilitiesResponse* response) override {
    if (options_.controller) {
      response->add_capabilities()->mutable_service()->set_type(
          PluginCapability::Service::CONTROLLER_SERVICE);
    }
    response->add_capabilities()->mutable_service()->set_type(
        PluginCapability::Service::VOLUME_ACCESSIBILITY_CONSTRAINTS);
    response->add_capabilities()->mutable_service()->set_type(
        PluginCapability::Service::SNAPSHOT_ACCESSIBILITY_CONSTRAINTS);
    response->add_capabilities()->mutable_volume_expansion()->set_type(
        PluginCapability::VolumeExpansion::ONLINE);
    return grpc::Status::OK;
  }

  grpc::Status Probe(grpc::ServerContext*, const csi::v1::ProbeRequest*,
                     csi::v1::ProbeResponse* response) override {
    const absl::Status ready = ready_();
    if (!ready.ok()) LogWarn("identity", "not ready", {{"reason", std::string(ready.message())}});
    response->mutable_ready()->set_value(ready.ok());
    return grpc::Status::OK;
  }

 private:
  const IdentityOptions options_;
  const std::function<absl::Status()> ready_;
};

}  // namespace

std::unique_ptr<csi::v1::Identity::Service> MakeIdentityService(IdentityOptions options,
                                                                std::function<absl::Status()> ready) {
  return std::make_unique<IdentityService>(options, std::move(ready));
}

}  // namespace lunkeeper
