// Who holds what, as failover asks twice a second: without secrets, and sent only when it has changed.

#include <atomic>
#include <catch2/catch.hpp>

#include "devices/array/remote/array.grpc.pb.h"
#include "devices/array/remote/testing/remote_array_fixture.h"

namespace lunkeeper::testing {
namespace {

namespace v1 = array::v1;

struct SeenAnswers {
  std::atomic<int> sent = 0, unchanged = 0, with_secret = 0;
};

// Counts what an agent answers.
class CountingAgent final : public v1::ArrayService::Service {
 public:
  CountingAgent(v1::ArrayService::Service& real, SeenAnswers& seen) : real_(real), seen_(seen) {}
  grpc::Status ListGrants(grpc::ServerContext* context, const v1::ListGrantsRequest* request,
                          v1::ListGrantsResponse* response) override {
    const grpc::Status status = real_.ListGrants(context, request, response);
    seen_.unchanged += response->unchanged() ? 1 : 0;
    seen_.sent += response->grants_size();
    for (const v1::Grant& grant : response->grants())
      seen_.with_secret += grant.connection().chap_secret().empty() ? 0 : 1;
    return status;
  }

 private:
  v1::ArrayService::Service& real_;
  SeenAnswers& seen_;
};

struct Counted : RemoteArrayFixture {
  Counted() {
    Restart();
    for (const char* name : {"v", "w"}) {
      VolumeSpec spec;
      spec.name = name;
      spec.size_bytes = 1 << 20;
      volumes.push_back(fake.CreateVolume(spec)->id);
    }
  }
  void Restart() {
    agent.Stop();
    agent.Wrap([&](auto& real) { return std::make_unique<CountingAgent>(real, seen); });
    agent.Start();
    REQUIRE(Eventually([&] { return Holders().ok(); }));
  }
  absl::StatusOr<std::vector<Grant>> Holders() {
    return array->grants().ListGrants({.volume = {}, .node = {}, .holders_only = true});
  }
  SeenAnswers seen;
  std::vector<VolumeId> volumes;
};

}  // namespace

TEST_CASE_METHOD(Counted, "who holds what is sent once for each change, and never with a secret") {
  REQUIRE(fake.AcquireGrant(For(volumes[0], kNodeA), absl::ZeroDuration()).ok());
  for (int round = 0; round < 3; ++round) {
    const auto holders = Holders();
    REQUIRE(holders->size() == 1);
    CHECK(holders->front().volume == volumes[0]);
    CHECK(holders->front().node == kNodeA);
    CHECK(holders->front().generation == fake.ListGrants({})->front().generation);
    CHECK(holders->front().connection.chap.secret.empty());
  }
  CHECK(seen.sent == 1);
  CHECK(seen.unchanged >= 2);
  CHECK(seen.with_secret == 0);

  REQUIRE(fake.AcquireGrant(For(volumes[1], kNodeB), absl::ZeroDuration()).ok());
  CHECK(Holders()->size() == 2);
  REQUIRE(fake.ModifyVolume(volumes[1], {.max_iops = 200}).ok());
  CHECK(Holders()->back().limits.iops == 200);
  REQUIRE(fake.ReleaseGrant(volumes[0], kNodeA, GrantOwner::kNode, kAnyGeneration).ok());
  REQUIRE(Holders()->size() == 1);
  CHECK(Holders()->front().node == kNodeB);
  const auto term = fake.BeginTerm("test");
  REQUIRE(fake.FenceNode(*term, {kNodeB, {volumes[1]}}).ok());
  CHECK(Holders()->empty());
  CHECK(Holders()->empty());
  CHECK(seen.with_secret == 0);
}

TEST_CASE_METHOD(Counted, "other questions are answered in full, beside the one whose answer is kept") {
  REQUIRE(fake.AcquireGrant(For(volumes[0], kNodeA), absl::ZeroDuration()).ok());
  REQUIRE(fake.AcquireGrant(For(volumes[1], kNodeB), absl::ZeroDuration()).ok());
  REQUIRE(Holders()->size() == 2);
  CHECK_FALSE(array->grants().ListGrants({})->front().connection.chap.secret.empty());
  CHECK(array->grants().ListGrants({.volume = volumes[1], .node = {}, .holders_only = true})->size() == 1);
  CHECK(Holders()->size() == 2);
}

TEST_CASE_METHOD(Counted, "an agent that fails is not answered for with what it said before") {
  REQUIRE(fake.AcquireGrant(For(volumes[0], kNodeA), absl::ZeroDuration()).ok());
  REQUIRE(Holders()->size() == 1);
  fake.FailWith(absl::UnavailableError("it is being restored"));
  CHECK(absl::IsUnavailable(Holders().status()));
  fake.FailWith(absl::OkStatus());
  agent.Stop();
  CHECK_FALSE(Holders().ok());
}

}  // namespace lunkeeper::testing
