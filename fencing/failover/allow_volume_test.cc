// `lunkeeper allow` against an API server in memory.

#include "fencing/failover/allow_volume.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "fencing/failover/facts.h"
#include "fencing/failover/testing/fake_api.h"

namespace lunkeeper::fencing {
namespace {

using kube::FieldAt;
using kube::Json;

constexpr char kPath[] = "/api/v1/persistentvolumes/pvc-1";

struct AllowRig {
  AllowRig() {
    api.Put(kPath, {{"metadata", {{"annotations", {{"keep", "me"}, {kMountDeathsKey, "n1.a,n2.b"}}}}},
                    {"spec", {{"csi", {{"driver", "csi.lunkeeper.io"}, {"volumeHandle", "a1-v1"}}}}}});
    api.Put("/api/v1/persistentvolumes/foreign",
            {{"spec", {{"csi", {{"driver", "another"}, {"volumeHandle", "x"}}}}}});
  }
  absl::Status Allow(const std::string& volume) {
    return AllowVolume(*client, volume, absl::Now() + absl::Seconds(30),
                       [this](const std::string& line) { lines.push_back(line); });
  }
  FakeApi api;
  std::unique_ptr<kube::KubeClient> client = api.Client();
  std::vector<std::string> lines;
};

}  // namespace

TEST_CASE("a volume that nodes died of is allowed by its id or by its name, and only its mark goes") {
  AllowRig rig;
  const std::string name = GENERATE(std::string("a1-v1"), std::string("pvc-1"));
  REQUIRE(rig.Allow(name).ok());
  CHECK(FieldAt(rig.api.Get(kPath), {"metadata", "annotations"}) == Json{{"keep", "me"}});
  CHECK_THAT(absl::StrJoin(rig.lines, "\n"), Catch::Contains("n1.a,n2.b"));
  rig.lines.clear();
  CHECK(rig.Allow(name).ok());
  CHECK_THAT(absl::StrJoin(rig.lines, "\n"), Catch::Contains("is not held back"));
}

TEST_CASE("a volume that nobody knows, or another driver's, is not allowed anything") {
  AllowRig rig;
  for (const std::string volume : {"a1-v2", "foreign", "x"}) CHECK(absl::IsNotFound(rig.Allow(volume)));
  rig.api.SetDown(true);
  CHECK_FALSE(AllowVolume(*rig.client, "pvc-1", absl::Now() + absl::Seconds(1), [](const auto&) {}).ok());
}

}  // namespace lunkeeper::fencing
