#include "fencing/failover/failover_recorder.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "base/executor.h"

namespace lunkeeper::fencing {

TEST_CASE("the event of a kick says why it was made, whatever the pod does") {
  const bool crash_loops = GENERATE(false, true);
  const State state{Settings()};
  ObjectCache objects{[](const auto&) {}};
  PodFacts facts;
  facts.uid = Uid("u");
  facts.node = NodeName("n1");
  facts.claims = {"db/data"};
  facts.crash_looping = GENERATE(false, true);
  objects.OnPod("db/p", std::make_shared<const PodFacts>(facts));
  std::vector<kube::ObjectEvent> events;
  FailoverRecorder recorder(
      state, objects, {"lunkeeper", "lunkeeper-failover"},
      [&](kube::ObjectEvent event) { events.push_back(std::move(event)); }, RealExecutor());
  const auto why = crash_loops ? WhyDeleted::kCrashLooped : WhyDeleted::kDeviceFailed;
  const Action kick{7, DeletePod{PodId("db/p"), Uid("u"), Grace::kOrdinary, why}};
  recorder.OnAction(kick);
  recorder.OnAnswer(kick, {}, 10_ms);
  REQUIRE(events.size() == 1);
  CHECK(events[0].uid == "u");
  CHECK(events[0].reason == "Kicked");
  CHECK(absl::StrContains(events[0].note, "its device failed for good") == !crash_loops);
  CHECK(absl::StrContains(events[0].note, "it crash-looped") == crash_loops);
}

}  // namespace lunkeeper::fencing
