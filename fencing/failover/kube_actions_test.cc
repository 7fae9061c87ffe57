// What an action asks of the API server, and what its answer says.

#include "fencing/failover/kube_actions.h"

#include <catch2/catch.hpp>

#include "fencing/failover/facts.h"
#include "fencing/failover/testing/fake_api.h"

namespace lunkeeper::fencing {

TEST_CASE("a kubelet is read from the API server itself: its lease and whether its Node is ready") {
  const NodeId node("n1.00000000000000aa");
  FakeApi api;
  const auto client = api.Client();
  KubeActions actions(*client, {"kube-system", "lunkeeper-failover"}, "replica-1", absl::Seconds(4));
  CHECK(actions.ReadKubelet({node, {}}).done.outcome == Outcome::kGone);

  const auto put = [&](const std::string& name, const std::string& ready) {
    const kube::Json conditions = {{{"type", "Ready"}, {"status", ready}}};
    api.Put("/api/v1/nodes/" + name, {{"status", {{"conditions", conditions}}}});
  };
  put("n0", "True");
  put("n1", "Unknown");
  Answer answer = actions.ReadKubelet({node, {}});
  REQUIRE(answer.done.kubelet);
  CHECK(answer.done.kubelet->renewal.empty());
  CHECK_FALSE(answer.done.kubelet->ready);

  put("n1", "True");
  const std::string leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/";
  api.Put(leases + "n0", {{"spec", {{"renewTime", "of another node"}}}});
  api.Put(leases + "n1", {{"spec", {{"renewTime", "2026-11-23T08:00:10.000000Z"}}}});
  answer = actions.ReadKubelet({node, {}});
  REQUIRE(answer.done.outcome == Outcome::kOk);
  REQUIRE(answer.done.kubelet);
  CHECK(answer.done.kubelet->renewal == Version("2026-11-23T08:00:10.000000Z"));
  CHECK(answer.done.kubelet->ready);
}

TEST_CASE(
    "which nodes died of a volume is stored on the PersistentVolume that was seen, and taken away again") {
  const std::string path = "/api/v1/persistentvolumes/pvc-1";
  FakeApi api;
  const auto client = api.Client();
  KubeActions actions(*client, {"kube-system", "lunkeeper-failover"}, "replica-1", absl::Seconds(4));
  api.Put(path, {{"metadata", {{"annotations", {{"keep", "me"}}}}}});
  const auto charge = [&](const ChargedNodes& nodes, const std::string& version) {
    return actions.ChargeVolume({VolumeId("a1-v1"), nodes}, "pvc-1", Version(version)).done.outcome;
  };
  const auto version = [&] { return kube::TextAt(api.Get(path), {"metadata", "resourceVersion"}); };
  const auto marked = [&] {
    return kube::TextAt(api.Get(path), {"metadata", "annotations", kMountDeathsKey});
  };
  const ChargedNodes nodes = {NodeId("n1.a"), NodeId("n2.b")};
  CHECK(charge(nodes, version()) == Outcome::kOk);
  CHECK(marked() == "n1.a,n2.b");
  CHECK(charge({}, "1") == Outcome::kConflict);  // a person has changed it since
  CHECK(marked() == "n1.a,n2.b");
  CHECK(charge({}, version()) == Outcome::kOk);
  CHECK(kube::FieldAt(api.Get(path), {"metadata", "annotations"}) == kube::Json{{"keep", "me"}});
  CHECK(actions.ChargeVolume({VolumeId("a1-v1"), nodes}, "gone", Version("1")).done.outcome ==
        Outcome::kGone);
}

}  // namespace lunkeeper::fencing
