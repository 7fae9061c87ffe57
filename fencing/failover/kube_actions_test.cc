// What an action asks of the API server, and what its answer says.

#include "fencing/failover/kube_actions.h"

#include <catch2/catch.hpp>

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

}  // namespace lunkeeper::fencing
