#include "fencing/failover/full_pools.h"

#include <catch2/catch.hpp>

#include "base/testing/test_host.h"
#include "base/units.h"
#include "devices/array/testing/fake_array.h"

namespace lunkeeper::fencing {
namespace {

// One array of 64 MiB.
struct PoolRig {
  std::shared_ptr<FakeArray> array =
      std::make_shared<FakeArray>(FakeArrayOptions{.name = "a1", .pool_bytes = 64 * kMiB});
  std::unique_ptr<lunkeeper::Arrays> arrays = MakeOneArray("a1", array);
  std::unique_ptr<FullPools> pools = WatchFullPools(*arrays, RealExecutor());

  VolumeId Make(const std::string& name, Provisioning provisioning, uint64_t bytes) {
    VolumeSpec spec;
    spec.name = name;
    spec.size_bytes = bytes;
    spec.provisioning = provisioning;
    return array->CreateVolume(spec)->id;
  }
  // Asks anew: the next look is due only much later.
  VolumeSet Look() {
    pools->SetWanted(false);
    CHECK(pools->ListVolumes()->empty());
    pools->SetWanted(true);
    testing::Eventually([&] { return !pools->ListVolumes()->empty(); }, absl::Seconds(2));
    return *pools->ListVolumes();
  }
};

}  // namespace

TEST_CASE("the thin volumes of a full pool are known while somebody wants to know") {
  PoolRig rig;
  const VolumeId thin = rig.Make("thin", Provisioning::kThin, kMiB);
  CHECK(rig.Look().empty());
  rig.Make("thick", Provisioning::kThick, 56 * kMiB);
  CHECK(rig.Look() == VolumeSet{thin});
}

TEST_CASE("a pool that was full is so until it has room again, and while its array does not answer") {
  PoolRig rig;
  const VolumeId thin = rig.Make("thin", Provisioning::kThin, kMiB);
  const VolumeId thick = rig.Make("thick", Provisioning::kThick, 56 * kMiB);
  REQUIRE(rig.Look() == VolumeSet{thin});
  rig.array->FailWith(absl::UnavailableError("a1 is away"));
  CHECK(rig.Look() == VolumeSet{thin});
  rig.array->FailWith(absl::OkStatus());
  REQUIRE(rig.array->DeleteVolume(thick).ok());
  rig.Make("less", Provisioning::kThick, 40 * kMiB);  // 24 MiB are left
  CHECK(rig.Look() == VolumeSet{thin});
}

}  // namespace lunkeeper::fencing
