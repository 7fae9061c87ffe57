// The smallest of the three services. GetPluginInfo and GetPluginCapabilities are constant; Probe is asked by
// liveness probes and by sidecars when they start, on gRPC's threads.
#include "identity/identity_service.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/driver.h"
#include "base/log.h"

namespace lunkeeper {
namespace {

using csi::v1::PluginCapability;

class IdentityService final : public csi::v1::Identity::Service {
 public:
  explicit IdentityService(ProbeChecks checks) : checks_(std::move(checks)) {}

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
                            Offered::GROUP_CONTROLLER_SERVICE, Offered::SNAPSHOT_METADATA_SERVICE,
                            Offered::SNAPSHOT_ACCESSIBILITY_CONSTRAINTS}) {
      response->add_capabilities()->mutable_service()->set_type(type);
    }
    response->add_capabilities()->mutable_volume_expansion()->set_type(
        PluginCapability::VolumeExpansion::ONLINE);
    return grpc::Status::OK;
  }

  grpc::Status Probe(grpc::ServerContext*, const csi::v1::ProbeRequest*,
                     csi::v1::ProbeResponse* response) override {
    absl::Status ready = checks_.healthy();
    if (IsBroken(ready)) {
      return {grpc::StatusCode::FAILED_PRECONDITION,
              absl::StrCat("this plugin cannot work: ", ready.message())};
    }
    // An answer and not an error: by CSI, an error says that the plugin itself is broken.
    ready.Update(checks_.ready());
    if (!ready.ok()) LogWarn("identity", "not ready", {{"reason", std::string(ready.message())}});
    response->mutable_ready()->set_value(ready.ok());
    return grpc::Status::OK;
  }

 private:
  bool IsBroken(const absl::Status& health) {
    const absl::MutexLock lock(&mutex_);
    if (health.ok()) {
      unhealthy_since_ = absl::InfiniteFuture();
      return false;
    }
    const absl::Time now = absl::Now();
    unhealthy_since_ = std::min(unhealthy_since_, now);
    return now - unhealthy_since_ >= checks_.broken_after;
  }

  const ProbeChecks checks_;
  absl::Mutex mutex_;
  // When a Probe first found the plugin unhealthy, of those in a row that did.
  absl::Time unhealthy_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
};

}  // namespace

std::unique_ptr<csi::v1::Identity::Service> MakeIdentityService(ProbeChecks checks) {
  return std::make_unique<IdentityService>(std::move(checks));
}

}  // namespace lunkeeper
