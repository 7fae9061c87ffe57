#include "fencing/failover/failover_recorder.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "base/executor.h"

namespace lunkeeper::fencing {

TEST_CASE("the event of a kick says why, though the pod was gone or another one before the answer came") {
  const bool crash_loops = GENERATE(false, true), replaced = GENERATE(false, true);
  const State state{Settings()};
  ObjectCache objects{[](const auto&) {}};
  const auto show = [&](const std::string& uid, bool crash_looping) {
    PodFacts facts;
    facts.uid = Uid(uid);
    facts.node = NodeName("n1");
    facts.claims = {"db/data"};
    facts.crash_looping = crash_looping;
    objects.OnPod("db/p", std::make_shared<const PodFacts>(facts));
  };
  std::vector<kube::ObjectEvent> events;
  FailoverRecorder recorder(
      state, objects, {"lunkeeper", "lunkeeper-failover"},
      [&](kube::ObjectEvent event) { events.push_back(std::move(event)); }, RealExecutor());
  const Action kick{7, DeletePod{PodId("db/p"), Uid("u"), Grace::kOrdinary}};
  show("u", crash_loops);
  recorder.OnAction(kick);
  objects.OnPod("db/p", nullptr);
  if (replaced) show("v", !crash_loops);
  recorder.OnAnswer(kick, {}, 10_ms);
  REQUIRE(events.size() == 1);
  CHECK(events[0].uid == "u");
  CHECK(absl::StrContains(events[0].note, "its device failed for good") == !crash_loops);
  CHECK(absl::StrContains(events[0].note, "it crash-looped") == crash_loops);
}

}  // namespace lunkeeper::fencing
