#include "identity/identity_service.h"

#include <catch2/catch.hpp>
#include <set>

#include "absl/time/clock.h"

namespace lunkeeper {
namespace {

absl::Status Fine() { return absl::OkStatus(); }

}  // namespace

TEST_CASE("the driver says its name and version") {
  const auto service = MakeIdentityService({&Fine, &Fine});
  csi::v1::GetPluginInfoResponse info;
  REQUIRE(service->GetPluginInfo(nullptr, nullptr, &info).ok());
  CHECK(info.name() == "csi.lunkeeper.io");
  CHECK_FALSE(info.vendor_version().empty());
}

TEST_CASE("the driver offers the same on every socket: controllers, topology, and growth online") {
  const auto service = MakeIdentityService({&Fine, &Fine});
  csi::v1::GetPluginCapabilitiesResponse response;
  REQUIRE(service->GetPluginCapabilities(nullptr, nullptr, &response).ok());
  using Capability = csi::v1::PluginCapability;
  std::set<int> services;
  for (const Capability& capability : response.capabilities()) services.insert(capability.service().type());
  CHECK(services.count(Capability::Service::CONTROLLER_SERVICE) == 1);
  CHECK(services.count(Capability::Service::VOLUME_ACCESSIBILITY_CONSTRAINTS) == 1);
  CHECK(services.count(Capability::Service::GROUP_CONTROLLER_SERVICE) == 1);
  CHECK(services.count(Capability::Service::SNAPSHOT_METADATA_SERVICE) == 1);
  CHECK(services.count(Capability::Service::SNAPSHOT_ACCESSIBILITY_CONSTRAINTS) == 1);
  CHECK(response.capabilities().rbegin()->volume_expansion().type() == Capability::VolumeExpansion::ONLINE);
}

TEST_CASE("a probe says ready only while the array serves") {
  absl::Status array = absl::OkStatus();
  const auto service = MakeIdentityService({[&] { return array; }, &Fine});
  csi::v1::ProbeResponse probe;
  REQUIRE(service->Probe(nullptr, nullptr, &probe).ok());
  CHECK(probe.ready().value());
  array = absl::UnavailableError("putting targets back");
  REQUIRE(service->Probe(nullptr, nullptr, &probe).ok());
  CHECK_FALSE(probe.ready().value());
}

TEST_CASE("a probe is an error when what the plugin needs has been gone for a while, and not before") {
  absl::Status devices = absl::UnavailableError("the data path does not answer");
  csi::v1::ProbeResponse probe;
  const auto patient = MakeIdentityService({&Fine, [&] { return devices; }, absl::InfiniteDuration()});
  for (int i = 0; i < 3; ++i) {
    REQUIRE(patient->Probe(nullptr, nullptr, &probe).ok());
    CHECK_FALSE(probe.ready().value());
  }
  const auto service = MakeIdentityService({&Fine, [&] { return devices; }, absl::ZeroDuration()});
  const grpc::Status broken = service->Probe(nullptr, nullptr, &probe);
  CHECK(broken.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK_THAT(broken.error_message(), Catch::Contains("the data path does not answer"));
  devices = absl::OkStatus();
  REQUIRE(service->Probe(nullptr, nullptr, &probe).ok());
  CHECK(probe.ready().value());
}

TEST_CASE("the time without a data path begins anew when it has answered in between") {
  absl::Status devices = absl::UnavailableError("the data path does not answer");
  csi::v1::ProbeResponse probe;
  const absl::Duration broken_after = absl::Seconds(2);
  const auto service = MakeIdentityService({&Fine, [&] { return devices; }, broken_after});
  REQUIRE(service->Probe(nullptr, nullptr, &probe).ok());
  const absl::Time first = absl::Now();
  devices = absl::OkStatus();
  REQUIRE(service->Probe(nullptr, nullptr, &probe).ok());
  devices = absl::UnavailableError("the data path does not answer");
  while (absl::Now() < first + broken_after) absl::SleepFor(absl::Milliseconds(20));
  REQUIRE(service->Probe(nullptr, nullptr, &probe).ok());
  CHECK_FALSE(probe.ready().value());
}

}  // namespace lunkeeper
