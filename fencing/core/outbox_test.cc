#include "fencing/core/outbox.h"

#include <catch2/catch.hpp>

namespace lunkeeper::fencing {
namespace {

const NodeId kNode("n1.0000000000000001"), kOtherNode("n2.0000000000000001");
const ArrayId kFirstArray("a1"), kSecondArray("a2");
constexpr Instant kStart(100_s);

struct OutboxRig {
  bool Fence(const ArrayId& array, const NodeId& node, Instant now) {
    return outbox.CallOnce(CallKey::ForFenceOf(array, node), FenceNode{array, 1, node, {}}, now);
  }
  bool Unfence(const ArrayId& array, const NodeId& node, Instant now) {
    return outbox.CallOnce(CallKey::ForFenceOf(array, node), UnfenceNode{array, 1, node, 7}, now);
  }
  void Answer(Outcome outcome, Instant now) {
    Done done;
    done.action = outbox.TakeActions().back().id;
    done.outcome = outcome;
    REQUIRE(outbox.TakeAnswered(done, now));
  }

  Settings settings;
  Outbox outbox{settings};
};

}  // namespace

TEST_CASE("a fence and an unfence of one node at one array exclude each other until the first is answered") {
  OutboxRig rig;
  REQUIRE(rig.Fence(kFirstArray, kNode, kStart));
  CHECK_FALSE(rig.Unfence(kFirstArray, kNode, kStart + 1_s));
  CHECK(rig.outbox.IsWaiting(CallKey::ForFenceOf(kFirstArray, kNode)));
  rig.Answer(Outcome::kOk, kStart + 2_s);
  REQUIRE(rig.Unfence(kFirstArray, kNode, kStart + 2_s));
  CHECK_FALSE(rig.Fence(kFirstArray, kNode, kStart + 3_s));
}

TEST_CASE("calls about other nodes, and at other arrays, do not wait for each other") {
  OutboxRig rig;
  REQUIRE(rig.Fence(kFirstArray, kNode, kStart));
  CHECK(rig.Fence(kSecondArray, kNode, kStart));
  CHECK(rig.Unfence(kFirstArray, kOtherNode, kStart));
  CHECK(rig.outbox.TakeActions().size() == 3);
}

TEST_CASE(
    "a call that failed is sent again after a pause, and one that is never answered after a longer one") {
  OutboxRig rig;
  REQUIRE(rig.Fence(kFirstArray, kNode, kStart));
  rig.Answer(Outcome::kFailed, kStart);
  CHECK_FALSE(rig.Fence(kFirstArray, kNode, kStart));
  REQUIRE(rig.Fence(kFirstArray, kNode, kStart + rig.settings.retry));
  CHECK_FALSE(rig.Fence(kFirstArray, kNode, kStart + rig.settings.answer_timeout));
  CHECK(rig.Fence(kFirstArray, kNode, kStart + rig.settings.retry + rig.settings.answer_timeout));
}

TEST_CASE("a deletion whose effect is not seen is asked for again, and each time later") {
  OutboxRig rig;
  const auto key = CallKey::ForPod(CallKey::Kind::kDeletePod, Uid("u"));
  const auto outcome = GENERATE(Outcome::kOk, Outcome::kFailed);
  int deletions = 0;
  for (Instant now = kStart; now < kStart + 300_s; now += 250_ms) {
    if (rig.outbox.CallOnce(key, DeletePod{PodId("db/db-0"), Uid("u"), Grace::kNone}, now)) {
      ++deletions;
      rig.Answer(outcome, now);
    }
    rig.outbox.PruneCalls(now);
  }
  CHECK(deletions >= 10);  // it goes on
  CHECK(deletions <= 30);
  // Nothing is left of it when nobody asks for it any more.
  rig.outbox.PruneCalls(kStart + 400_s);
  CHECK(rig.outbox.CallOnce(key, DeletePod{PodId("db/db-0"), Uid("u"), Grace::kNone}, kStart + 400_s));
  rig.Answer(outcome, kStart + 400_s);
  CHECK(rig.outbox.CallOnce(key, DeletePod{PodId("db/db-0"), Uid("u"), Grace::kNone},
                            kStart + 400_s + rig.settings.retry));
}

TEST_CASE("a taint of a silent plugin that is refused is asked for less and less often") {
  OutboxRig rig;
  const NodeName node("n1");
  int writes = 0;
  const auto try_until = [&](Instant from, Instant until, Outcome outcome) {
    for (Instant now = from; now < until; now += 250_ms) {
      const SetTaint call{node, Version("v"), "silent", OurTaint::kPluginNotReady};
      if (rig.outbox.CallOnce(CallKey::ForPluginTaintOf(node), call, now)) ++writes, rig.Answer(outcome, now);
      rig.outbox.PruneCalls(now);
    }
  };
  try_until(kStart, kStart + 300_s, Outcome::kFailed);
  CHECK(writes >= 10);  // it goes on
  CHECK(writes <= 30);
  // The taint of a fence does not wait for it.
  CHECK(rig.outbox.CallOnce(CallKey::ForTaintOf(node), SetTaint{node, Version("v"), "n1.i"}, kStart + 300_s));
  // A conflict is no refusal.
  writes = 0;
  try_until(kStart + 400_s, kStart + 410_s, Outcome::kConflict);
  CHECK(writes >= 10);
}

}  // namespace lunkeeper::fencing
