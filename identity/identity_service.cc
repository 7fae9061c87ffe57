// The smallest of the three services. GetPluginInfo and GetPluginCapabilities are constant; Probe is asked by
// liveness probes and by sidecars when they start, on gRPC's threads.
#include "identity/identity_service.h"

#include <string>
#include <utility>

#include "base/driver.h"
#include "base/log.h"

namespace lunkeeper {
namespace {

using csi::v1::PluginCapability;

class IdentityService final : public csi::v1::Identity::Service {
 public:
  explicit IdentityService(std::function<absl::Status()> ready) : ready_(std::move(ready)) {}

  grpc::Status GetPluginInfo(grpc::ServerContext*, const csi::v1::GetPluginInfoRequest*,
                             csi::v1::GetPluginInfoResponse* response) override {
    response->set_name(kDriverName);
    response->set_vendor_version(LUNKEEPER_VERSION);
    return grpc::Status::OK;
  }

  grpc::Status GetPluginCapabilities(grpc::ServerContext*, const csi::v1::GetPluginCapabilitiesRequest*,
                                     csi::v1::GetPluginCapabilitiesResponse* response) override {
    using Offered = PluginCapability::Service;
    // Volumes can be used only from nodes that reach their array, snapshots only on the array of their
    // volume: without the two constraints an orchestrator would place pods and clones where they cannot work.
    for (const auto type : {Offered::CONTROLLER_SERVICE, Offered::VOLUME_ACCESSIBILITY_CONSTRAINTS,
                            Offered::SNAPSHOT_ACCESSIBILITY_CONSTRAINTS}) {
      response->add_capabilities()->mutable_service()->set_type(type);
    }
    response->add_capabilities()->mutable_volume_expansion()->set_type(
        PluginCapability::VolumeExpansion::ONLINE);
    return grpc::Status::OK;
  }

  grpc::Status Probe(grpc::ServerContext*, const csi::v1::ProbeRequest*,
                     csi::v1::ProbeResponse* response) override {
    // Not ready is an answer, not an error: by CSI, an error says that the plugin itself is broken.
    const absl::Status ready = ready_();
    if (!ready.ok()) LogWarn("identity", "not ready", {{"reason", std::string(ready.message())}});
    response->mutable_ready()->set_value(ready.ok());
    return grpc::Status::OK;
  }

 private:
  const std::function<absl::Status()> ready_;
};

}  // namespace

std::unique_ptr<csi::v1::Identity::Service> MakeIdentityService(std::function<absl::Status()> ready) {
  return std::make_unique<IdentityService>(std::move(ready));
}

}  // namespace lunkeeper
