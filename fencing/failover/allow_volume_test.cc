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
using kube::TextAt;

constexpr char kPath[] = "/api/v1/persistentvolumes/pvc-1";

struct AllowRig {
  AllowRig() {
    api.Put(kPath, {{"metadata", {{"annotations", {{"keep", "me"}, {kMountDeathsKey, "n1.a,n2.b"}}}}},
                    {"spec", {{"csi", {{"driver", "csi.lunkeeper.io"}, {"volumeHandle", "a1-v1"}}}}}});
    api.Put("/api/v1/persistentvolumes/foreign",
            {{"spec", {{"csi", {{"driver", "another"}, {"volumeHandle", "x"}}}}}});
  }
  absl::Status Allow(const std::vector<std::string>& volumes) {
    return AllowVolumes(*client, volumes, absl::Now() + absl::Seconds(30),
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
  REQUIRE(rig.Allow({name}).ok());
  CHECK(FieldAt(rig.api.Get(kPath), {"metadata", "annotations"}) == Json{{"keep", "me"}});
  CHECK_THAT(absl::StrJoin(rig.lines, "\n"), Catch::Contains("n1.a,n2.b"));
  rig.lines.clear();
  CHECK(rig.Allow({name}).ok());
  CHECK_THAT(absl::StrJoin(rig.lines, "\n"), Catch::Contains("is not held back"));
}

TEST_CASE("several volumes are allowed at once, by their names or all; with one that nobody knows, none") {
  AllowRig rig;
  constexpr char kOther[] = "/api/v1/persistentvolumes/pvc-2";
  rig.api.Put(kOther, {{"metadata", {{"annotations", {{kMountDeathsKey, "n1.a"}}}}},
                       {"spec", {{"csi", {{"driver", "csi.lunkeeper.io"}, {"volumeHandle", "a1-v2"}}}}}});
  const auto died_of = [&](const char* path) {
    return TextAt(rig.api.Get(path), {"metadata", "annotations", kMountDeathsKey});
  };
  CHECK(absl::IsNotFound(rig.Allow({"a1-v1", "a1-v3"})));
  CHECK(died_of(kPath) == "n1.a,n2.b");
  const std::vector<std::string> volumes =
      GENERATE(std::vector<std::string>{"a1-v1", "pvc-2"}, std::vector<std::string>{});
  REQUIRE(rig.Allow(volumes).ok());
  CHECK(died_of(kPath).empty());
  CHECK(died_of(kOther).empty());
  CHECK(rig.lines.size() == 2);
  CHECK(rig.Allow({}).ok());
}

TEST_CASE("a volume that nobody knows, or another driver's, is not allowed anything") {
  AllowRig rig;
  for (const std::string volume : {"a1-v2", "foreign", "x"}) CHECK(absl::IsNotFound(rig.Allow({volume})));
  rig.api.SetDown(true);
  CHECK_FALSE(AllowVolumes(*rig.client, {"pvc-1"}, absl::Now() + absl::Seconds(1), [](const auto&) {}).ok());
}

}  // namespace lunkeeper::fencing
