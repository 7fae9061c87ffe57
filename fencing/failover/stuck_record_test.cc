// An old NodeFence that only others' finalizers keep.

#include <catch2/catch.hpp>
#include <string>

#include "absl/time/clock.h"
#include "fencing/failover/kube_actions.h"
#include "fencing/failover/testing/fake_api.h"

namespace lunkeeper::fencing {

// The API server's clock wrote when it was deleted.
TEST_CASE("others have their time with an old NodeFence by this replica's own clock, and no more") {
  const std::string deleted = GENERATE("2001-01-01T00:00:00Z", "2099-01-01T00:00:00Z");
  CAPTURE(deleted);
  constexpr absl::Duration kTime = absl::Seconds(1);
  FakeApi api;
  const auto client = api.Client();
  KubeActions actions(*client, {"kube-system", "lunkeeper-failover"}, "replica-1", absl::Seconds(4),
                      RealExecutor(), {.others_time = kTime});
  NodeFence fence;
  fence.node = NodeId("n1.00000000000000aa");
  const std::string path = "/apis/lunkeeper.io/v1alpha1/nodefences/" + fence.node.value();
  api.Put(path, {{"metadata", {{"finalizers", {"others/audit"}}, {"deletionTimestamp", deleted}}}});
  const auto outcome = [&] { return actions.PutRecord({fence}, {}).done.outcome; };
  SECTION("from when a watch brought it") {
    const RecordFacts seen = ReadRecord(api.Get(path));
    actions.NoteRecord(fence.node, &seen);
    absl::SleepFor(kTime);
    CHECK(outcome() == Outcome::kConflict);
  }
  SECTION("from when it was in the way first, where no watch did") {
    CHECK(outcome() == Outcome::kConflict);
    CHECK(outcome() == Outcome::kConflict);
    CHECK_FALSE(api.Get(path).is_null());
    absl::SleepFor(kTime);
    CHECK(outcome() == Outcome::kConflict);
  }
  CHECK(api.Get(path).is_null());
  CHECK(outcome() == Outcome::kOk);
}

}  // namespace lunkeeper::fencing
