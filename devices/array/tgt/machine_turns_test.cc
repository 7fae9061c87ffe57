// A machine that takes and releases volumes without end, at a real array.
#include <catch2/catch.hpp>
#include <thread>

#include "absl/time/clock.h"
#include "devices/array/tgt/testing/array_fixture.h"

namespace lunkeeper::testing {
namespace {

const NodeId kTaker("node-a.1"), kNeighbour("node-b.1");

struct WithSmallShares : ClusterFixture {
  WithSmallShares() {
    array.reset();
    Close();
    options.shares = {.at_once = std::chrono::milliseconds(1), .share = 0.001};
    REQUIRE(Open() == absl::OkStatus());
    array = Cluster();
  }
  absl::Status Churn(const VolumeId& volume, int rounds) {
    absl::Status status;
    for (int i = 0; i < rounds && status.ok(); ++i) {
      status = Acquire(volume, kTaker).status();
      if (status.ok()) status = Release(volume, kTaker);
    }
    return status;
  }
};

TEST_CASE_METHOD(WithSmallShares,
                 "a machine that takes volumes without end leaves the array's time to others") {
  const VolumeId volume = Make("v");
  CHECK(absl::IsUnavailable(Churn(volume, 100)));
  CHECK(Acquire(volume, kNeighbour).ok());  // no call of the other machine stands in its line
}

TEST_CASE_METHOD(WithSmallShares,
                 "a machine whose share is used up keeps what it has, and is fenced at once") {
  const VolumeId held = Make("held"), volume = Make("v");
  const auto grant = Acquire(held, kTaker);
  REQUIRE(grant.ok());
  CHECK(absl::IsUnavailable(Churn(volume, 100)));
  CHECK(Acquire(held, kTaker)->generation == grant->generation);
  absl::StatusOr<Grant> waited = absl::UnknownError("");
  std::thread waits([&] { waited = Acquire(volume, kTaker, absl::Minutes(10)); });
  const auto term = array->fences().BeginTerm("leader");
  const absl::Time began = absl::Now();
  CHECK(array->fences().FenceNode(*term, {kTaker, {held}}).ok());
  waits.join();
  CHECK(absl::Now() - began < absl::Seconds(10));
  CHECK(absl::IsFailedPrecondition(waited.status()));
}

}  // namespace
}  // namespace lunkeeper::testing
