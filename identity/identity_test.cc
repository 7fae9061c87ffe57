#include "identity/identity_service.h"

#include <catch2/catch.hpp>
#include <set>

namespace lunkeeper {
TEST_CASE("the driver says its name and version") {
  const auto service = MakeIdentityService([] { return absl::OkStatus(); });
  csi::v1::GetPluginInfoResponse info;
  REQUIRE(service->GetPluginInfo(nullptr, nullptr, &info).ok());
  CHECK(info.name() == "csi.lunkeeper.io");
  CHECK_FALSE(info.vendor_version().empty());
}

TEST_CASE("the driver offers the same on every socket: a controller, topology, and growth online") {
  const auto service = MakeIdentityService([] { return absl::OkStatus(); });
  csi::v1::GetPluginCapabilitiesResponse response;
  REQUIRE(service->GetPluginCapabilities(nullptr, nullptr, &response).ok());
  using Capability = csi::v1::PluginCapability;
  std::set<int> services;
  for (const Capability& capability : response.capabilities()) services.insert(capability.service().type());
  CHECK(services.count(Capability::Service::CONTROLLER_SERVICE) == 1);
  CHECK(services.count(Capability::Service::VOLUME_ACCESSIBILITY_CONSTRAINTS) == 1);
  CHECK(services.count(Capability::Service::SNAPSHOT_ACCESSIBILITY_CONSTRAINTS) == 1);
  CHECK(response.capabilities().rbegin()->volume_expansion().type() == Capability::VolumeExpansion::ONLINE);
}

TEST_CASE("a probe says ready only while the array serves") {
  absl::Status array = absl::OkStatus();
  const auto service = MakeIdentityService([&] { return array; });
  csi::v1::ProbeResponse probe;
  REQUIRE(service->Probe(nullptr, nullptr, &probe).ok());
  CHECK(probe.ready().value());
  array = absl::UnavailableError("putting targets back");
  REQUIRE(service->Probe(nullptr, nullptr, &probe).ok());
  CHECK_FALSE(probe.ready().value());
}

}  // namespace lunkeeper
