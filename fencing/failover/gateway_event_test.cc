#include "fencing/failover/gateway_event.h"

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "fencing/failover/testing/fake_api.h"

namespace lunkeeper::fencing {
namespace {

const kube::LeaseName kLease{"lunkeeper", "lunkeeper-failover"};
constexpr char kEvents[] = "/apis/events.k8s.io/v1/namespaces/lunkeeper/events";

ArrayGateway TakenOver(uint64_t epoch) {
  return {"rack1",
          {.host = "b",
           .epoch = epoch,
           .before = "a",
           .change = GatewayChange::kTakeover,
           .since = absl::FromUnixSeconds(1'800'000'000),
           .phases = {{"silence", absl::Milliseconds(5200)}, {"shut_out", absl::Milliseconds(900)}}}};
}

absl::Status Tell(FakeApi& api, const ArrayGateway& gateway, const std::string& replica = "replica-1") {
  return TellGateway(*api.Client(), kLease, replica, gateway, absl::Now() + absl::Seconds(20));
}

}  // namespace

TEST_CASE("a takeover is told once, whichever replica tells it how often, and the next one again") {
  FakeApi api;
  api.Put("/apis/coordination.k8s.io/v1/namespaces/lunkeeper/leases/lunkeeper-failover", {{"spec", {}}});
  CHECK(Tell(api, TakenOver(7)) == absl::OkStatus());
  CHECK(Tell(api, TakenOver(7)) == absl::OkStatus());
  CHECK(Tell(api, TakenOver(7), "replica-2") == absl::OkStatus());
  CHECK(api.CountWrites(std::string("POST ") + kEvents) == 1);
  CHECK(Tell(api, TakenOver(8)) == absl::OkStatus());
  CHECK(api.CountWrites(std::string("POST ") + kEvents) == 2);
  const kube::Json event = api.Get(std::string(kEvents) + "/lunkeeper-rack1-epoch-7");
  CHECK(kube::TextAt(event, {"reason"}) == "ArrayTakenOver");
  CHECK(kube::TextAt(event, {"type"}) == "Warning");
  CHECK(kube::TextAt(event, {"regarding", "name"}) == "lunkeeper-failover");
  CHECK_FALSE(kube::TextAt(event, {"regarding", "uid"}).empty());
  CHECK(kube::TextAt(event, {"note"}) ==
        "array rack1 is served by gateway b since 2027-01-15T08:00:00Z (epoch 7): a was shut out after 5.2 s "
        "of silence; it was ready 0.9 s later");
}

TEST_CASE("an array that was given away is no warning; an API server that is away has not been told") {
  FakeApi api;
  ArrayGateway gateway = TakenOver(7);
  gateway.state.change = GatewayChange::kHandover;
  gateway.state.phases = {{"shut_out", absl::Milliseconds(900)}};
  api.SetDown(true);
  CHECK_FALSE(Tell(api, gateway).ok());
  api.SetDown(false);
  CHECK(Tell(api, gateway) == absl::OkStatus());
  const kube::Json event = api.Get(std::string(kEvents) + "/lunkeeper-rack1-epoch-7");
  CHECK(kube::TextAt(event, {"reason"}) == "ArrayHandedOver");
  CHECK(kube::TextAt(event, {"type"}) == "Normal");
  CHECK(kube::TextAt(event, {"note"}) ==
        "array rack1 is served by gateway b since 2027-01-15T08:00:00Z (epoch 7): a gave it away; it was "
        "ready 0.9 s later");
}

}  // namespace lunkeeper::fencing
