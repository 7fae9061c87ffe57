// Leases, token reviews, events and quantities, as they go over the wire.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "fencing/kube/lease.h"
#include "fencing/kube/object_event.h"
#include "fencing/kube/quantity.h"
#include "fencing/kube/testing/api_fixture.h"
#include "fencing/kube/token_review.h"

namespace lunkeeper::kube {
namespace {

const LeaseName kLease{"kube-system", "lunkeeper"};

// One Lease object with the API server's rules for writing it.
class OneLease {
 public:
  void operator()(Exchange& exchange) {
    absl::MutexLock lock(&mu_);
    const Json body = ParseJson(exchange.body).value_or(Json());
    if (exchange.method == "POST") {
      if (!object_.is_null()) return exchange.Refuse(409, "AlreadyExists", "it exists");
      return Store(exchange, body);
    }
    if (object_.is_null()) return exchange.Refuse(404, "NotFound", "no such lease");
    if (exchange.method == "GET") return exchange.Reply(object_);
    if (FieldAt(body, {"metadata", "resourceVersion"}) != FieldAt(object_, {"metadata", "resourceVersion"}))
      return exchange.Refuse(409, "Conflict", "the object has been modified");
    Json merged = object_;
    merged.merge_patch(body);
    Store(exchange, merged);
  }
  Json object() {
    absl::MutexLock lock(&mu_);
    return object_;
  }

 private:
  void Store(Exchange& exchange, const Json& object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    object_ = object;
    object_["metadata"]["resourceVersion"] = std::to_string(++version_);
    exchange.Reply(object_);
  }
  absl::Mutex mu_;
  Json object_ ABSL_GUARDED_BY(mu_);
  int version_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace

TEST_CASE("a lease is taken, renewed, given up and taken by another") {
  OneLease lease;
  ApiFixture api([&](Exchange& exchange) { lease(exchange); });
  const auto client = api.Client();
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  const auto write = [&](const Lease& seen, const std::string& holder, absl::Time at) {
    return WriteLease(*client, kLease, seen, holder, absl::Seconds(4), at, Soon());
  };
  const auto none = ReadLease(*client, kLease, Soon());
  REQUIRE(none.ok());
  CHECK((none->holder.empty() && none->version.empty()));

  const auto taken = write(*none, "a", now);
  REQUIRE(taken.ok());
  CHECK((taken->holder == "a" && taken->version == "1" && taken->transitions == 0));
  CHECK(TextAt(lease.object(), {"spec", "acquireTime"}) == "2027-01-15T08:00:00.000000Z");
  CHECK(NumberAt(lease.object(), {"spec", "leaseDurationSeconds"}) == 4);

  const auto renewed = write(*taken, "a", now + absl::Seconds(1));
  REQUIRE(renewed.ok());
  CHECK(TextAt(lease.object(), {"spec", "acquireTime"}) == "2027-01-15T08:00:00.000000Z");
  CHECK(TextAt(lease.object(), {"spec", "renewTime"}) == "2027-01-15T08:00:01.000000Z");

  CHECK(absl::IsAborted(write(*taken, "b", now).status()));  // b has not seen the renewal
  CHECK(absl::IsAlreadyExists(write(*none, "b", now).status()));

  const auto released = write(*renewed, "", now);
  REQUIRE(released.ok());
  CHECK((released->holder.empty() && released->transitions == 0));
  const auto next = write(*released, "b", now);
  REQUIRE(next.ok());
  CHECK((next->holder == "b" && next->transitions == 1));
  CHECK(ReadLease(*client, kLease, Soon())->version == next->version);
}

TEST_CASE("of many who take a lease at once exactly one has it") {
  OneLease lease;
  ApiFixture api([&](Exchange& exchange) { lease(exchange); });
  const auto client = api.Client();
  for (int round = 0; round < 10; ++round) {
    const auto seen = ReadLease(*client, kLease, Soon());
    REQUIRE(seen.ok());
    std::atomic<int> holders = 0, refused = 0;
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 5; ++i) {
        threads.emplace_back([&, i] {
          const auto result = WriteLease(*client, kLease, *seen, absl::StrCat("r", round, i),
                                         absl::Seconds(4), absl::Now(), Soon());
          holders += result.ok();
          refused += absl::IsAborted(result.status()) || absl::IsAlreadyExists(result.status());
        });
      }
    }
    CHECK(holders == 1);
    CHECK(refused == 4);
  }
}

TEST_CASE("a token's owner is what the API server says, if it is meant for us") {
  Json status = {{"authenticated", true},
                 {"audiences", {"coordinator.lunkeeper.io"}},
                 {"user",
                  {{"username", "system:serviceaccount:kube-system:lunkeeper-node"},
                   {"extra",
                    {{"authentication.kubernetes.io/node-name", {"n1"}},
                     {"authentication.kubernetes.io/pod-name", {"node-abc"}},
                     {"authentication.kubernetes.io/pod-uid", {"u1"}}}}}}};
  Json asked;
  ApiFixture api([&](Exchange& exchange) {
    asked = ParseJson(exchange.body).value_or(Json());
    exchange.Reply(201, ToText({{"status", status}}), "");
  });
  const auto client = api.Client();
  const auto review = [&] { return ReviewToken(*client, "the-secret", "coordinator.lunkeeper.io", Soon()); };
  const auto good = review();
  REQUIRE(good.ok());
  CHECK(good->user == "system:serviceaccount:kube-system:lunkeeper-node");
  CHECK((good->node == "n1" && good->pod == "node-abc" && good->pod_uid == "u1" && good->node_uid.empty()));
  CHECK(TextAt(asked, {"spec", "token"}) == "the-secret");
  CHECK(FieldAt(asked, {"spec", "audiences"}) == Json{"coordinator.lunkeeper.io"});

  status["user"]["extra"]["authentication.kubernetes.io/node-name"] = {"n1",
                                                                       "n2"};  // never seen: not believed
  CHECK(review()->node.empty());
  status["audiences"] = {"https://kubernetes.default.svc"};
  CHECK(absl::IsUnauthenticated(review().status()));
  status.erase("audiences");  // an API server that does not know of audiences
  CHECK(absl::IsUnauthenticated(review().status()));
  status = {{"authenticated", false}, {"error", "token expired"}};
  const absl::Status expired = review().status();
  CHECK(absl::IsUnauthenticated(expired));
  CHECK(absl::StrContains(std::string(expired.message()), "token expired"));
  CHECK_FALSE(absl::StrContains(std::string(expired.message()), "the-secret"));
  status = nullptr;
  CHECK(absl::IsUnauthenticated(review().status()));
  CHECK(absl::IsUnauthenticated(ReviewToken(*client, "", "coordinator.lunkeeper.io", Soon()).status()));
}

TEST_CASE("events say what happened to an object, and are never longer than allowed") {
  Json made;
  std::string path;
  ApiFixture api([&](Exchange& exchange) {
    path = exchange.path;
    made = ParseJson(exchange.body).value_or(Json());
    exchange.Reply(Json::object());
  });
  const auto client = api.Client();
  ObjectEvent event{"v1", "Node", "", "n1", "u1", EventKind::kWarning, "Fenced", "Fence", "node n1 is fenced",
                    "r1"};
  REQUIRE(RecordEvent(*client, event, absl::FromUnixMicros(1'800'000'000'000'123), Soon()).ok());
  CHECK(path == "/apis/events.k8s.io/v1/namespaces/default/events");
  CHECK(TextAt(made, {"eventTime"}) == "2027-01-15T08:00:00.000123Z");
  CHECK(TextAt(made, {"regarding", "name"}) == "n1");
  CHECK(TextAt(made, {"type"}) == "Warning");
  CHECK_FALSE(FieldAt(made, {"regarding"}).contains("namespace"));

  event.space = "db";
  event.note.clear();
  for (int i = 0; i < 1000; ++i) event.note += "é";
  REQUIRE(RecordEvent(*client, event, absl::Now(), Soon()).ok());
  CHECK(path == "/apis/events.k8s.io/v1/namespaces/db/events");
  CHECK(TextAt(made, {"note"}).size() == 1024);
}

TEST_CASE("a quantity is read as Kubernetes reads it") {
  CHECK(ParseQuantity("10Gi") == 10.0 * (1 << 30));
  CHECK(ParseQuantity("1.5Ki") == 1536);
  CHECK(ParseQuantity("2k") == 2000);
  CHECK(ParseQuantity("3E") == 3e18);
  CHECK(ParseQuantity("1e3") == 1000);
  CHECK(ParseQuantity("1500m") == 1.5);
  for (const char* none : {"", "Gi", "x", "1KiB"}) CHECK_FALSE(ParseQuantity(none).has_value());
}

}  // namespace lunkeeper::kube
