#include "fencing/failover/failover_recorder.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "base/executor.h"

namespace lunkeeper::fencing {
namespace {

struct SetClock : Executor {
  absl::Duration SteadyNow() const override { return now; }
  absl::Time WallNow() const override { return absl::UnixEpoch() + now; }
  std::unique_ptr<Thread> StartThread(std::function<void()> work) override {
    return RealExecutor().StartThread(std::move(work));
  }
  std::unique_ptr<Signal> MakeSignal() override { return RealExecutor().MakeSignal(); }
  std::unique_ptr<Workers> MakeWorkers(size_t count) override { return RealExecutor().MakeWorkers(count); }

  absl::Duration now = absl::Hours(1);
};

// A recorder, and the decision that it is shown.
struct Decided {
  Decided() {
    fence.node = NodeId("n1.i");
    fence.cause = "it is silent";
  }

  const State state{Settings()};
  const ObjectCache objects{[](const auto&) {}};
  SetClock clock;
  FailoverRecorder recorder{state, objects, {"lunkeeper", "lunkeeper-failover"}, [](const auto&) {}, clock};
  Action put{1, PutNodeFence{}};
  NodeFence& fence = std::get<PutNodeFence>(put.what).fence;
};

}  // namespace

TEST_CASE_METHOD(Decided, "a failover's timeline has nothing of an earlier one that never came to a record") {
  recorder.OnAction(put);
  clock.now += absl::Seconds(2);
  recorder.OnAction(put);  // there was no answer
  const Timeline first = recorder.TimelineOf(fence.node);
  REQUIRE(first.size() == 1);
  clock.now += absl::Hours(1);
  fence.cause = "it was shut down";
  recorder.OnAction(put);
  const Timeline second = recorder.TimelineOf(fence.node);
  REQUIRE(second.size() == 1);
  CHECK(second[0].text == fence.cause);
  CHECK(second[0].at == clock.WallNow());
  fence.version = Version("1");
  clock.now += absl::Hours(1);
  recorder.OnAction(put);  // of the record that is there now
  CHECK(recorder.TimelineOf(fence.node) == second);
}

TEST_CASE_METHOD(
    Decided,
    "a decision whose record is refused for minutes is one decision, and nothing of a later NodeFence") {
  recorder.OnAction(put);
  const Timeline first = recorder.TimelineOf(fence.node);
  for (int refused = 0; refused < 9; ++refused) {
    clock.now += absl::Seconds(20);
    recorder.OnAction(put);
  }
  CHECK(recorder.TimelineOf(fence.node) == first);
  clock.now += absl::Hours(1);
  RecordFacts manual;
  manual.fence.node = fence.node;
  manual.fence.requested_by = "a person";
  recorder.OnRecord(fence.node, &manual);
  CHECK(recorder.TimelineOf(fence.node).empty());
}

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
