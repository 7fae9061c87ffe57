#include "identity/identity_service.h"

#include <catch2/catch.hpp>

namespace lunkeeper {
namespace {

bool OffersController(bool with_controller) {
  const auto service = MakeIdentityService({with_controller}, [] { return absl::OkStatus(); });
  csi::v1::GetPluginCapabilitiesResponse response;
  REQUIRE(service->GetPluginCapabilities(nullptr, nullptr, &response).ok());
  for (const auto& capability : response.capabilities()) {
    if (capability.service().type() == csi::v1::PluginCapability::Service::CONTROLLER_SERVICE) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the driver says its name and version") {
  const auto service = MakeIdentityService({}, [] { return absl::OkStatus(); });
  csi::v1::GetPluginInfoResponse info;
  REQUIRE(service->GetPluginInfo(nullptr, nullptr, &info).ok());
  CHECK(info.name() == "csi.lunkeeper.io");
  CHECK_FALSE(info.vendor_version().empty());
}

TEST_CASE("the Controller service is announced only by a process that has it") {
  CHECK(OffersController(true));
  CHECK_FALSE(OffersController(false));
}

TEST_CASE("a probe says ready only while the array serves") {
  absl::Status array = absl::OkStatus();
  const auto service = MakeIdentityService({}, [&] { return array; });
  csi::v1::ProbeResponse probe;
  REQUIRE(service->Probe(nullptr, nullptr, &probe).ok());
  CHECK(probe.ready().value());
  array = absl::UnavailableError("putting targets back");
  REQUIRE(service->Probe(nullptr, nullptr, &probe).ok());
  CHECK_FALSE(probe.ready().value());
}

}  // namespace lunkeeper
