// The manual levers against an API server in memory, where the test plays the controller that leads.

#include "fencing/failover/manual_fence.h"

#include <catch2/catch.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/periodic.h"
#include "fencing/core/phase.h"
#include "fencing/core/words.h"
#include "fencing/failover/record.h"
#include "fencing/failover/testing/fake_api.h"

namespace lunkeeper::fencing {
namespace {

using testing::Eventually;

using kube::FieldAt;
using kube::Json;
using kube::TextAt;

constexpr char kFences[] = "/apis/lunkeeper.io/v1alpha1/nodefences/";
constexpr char kNode[] = "n1.00000000000000aa";

struct HandRig {
  HandRig() {
    const Json driver = {{"name", "csi.lunkeeper.io"}, {"nodeID", kNode}};
    api.Put("/apis/storage.k8s.io/v1/csinodes/n1", {{"spec", {{"drivers", Json::array({driver})}}}});
    api.Put("/apis/storage.k8s.io/v1/csinodes/bare", {{"spec", {{"drivers", Json::array()}}}});
  }

  ManualFenceIo Hand(absl::Duration limit = absl::Seconds(30)) {
    return {*client, absl::Now() + limit, [this](const std::string& line) { lines.push_back(line); }};
  }
  absl::Status Fence(const std::string& node, absl::Duration limit = absl::Seconds(30)) {
    return RequestManualFence(Hand(limit), {node, "its fan is on fire", "operator@desk"});
  }
  std::string Said() const { return absl::StrJoin(lines, "\n"); }
  std::string Path(const std::string& id = kNode) const { return kFences + id; }
  // The controller: whatever it finds there without a phase, or being deleted, it answers so.
  void Controller(const Json& status, bool lifts = true) {
    controller = std::make_unique<Periodic>(absl::Milliseconds(10), [this, status, lifts] {
      for (const std::string& id : {std::string(kNode), std::string("n9.00000000000000ff")}) {
        const Json fence = api.Get(Path(id));
        if (fence.is_null()) continue;
        if (TextAt(fence, {"status", "phase"}).empty()) api.Merge(Path(id), {{"status", status}});
        if (lifts && !FieldAt(fence, {"metadata", "deletionTimestamp"}).is_null()) api.Remove(Path(id));
      }
    });
  }

  std::function<void(kube::Exchange&)> on_call = [](auto&) {};
  FakeApi api{[](const std::string&) {},
              [this](kube::Exchange& exchange) {
                on_call(exchange);
                return false;
              }};
  std::unique_ptr<kube::KubeClient> client = api.Client();
  std::vector<std::string> lines;
  std::unique_ptr<Periodic> controller;
};

Json InForce() {
  const Json moment = {{"at", "2026-11-21T08:00:00.123Z"}, {"event", "Fenced"}, {"text", "a1: 2 volumes"}};
  return {{"phase", "Moved"},
          {"arrays", {{"a1", {{"volumes", {"a1-v1", "a1-v2"}}, {"generation", 7}}}}},
          {"timeline", {moment}}};
}

}  // namespace

TEST_CASE("a node is fenced by its name: asked for, followed until every array has confirmed, and told") {
  HandRig rig;
  rig.Controller(InForce());
  REQUIRE(rig.Fence("n1").ok());
  const Json fence = rig.api.Get(rig.Path());
  CHECK(TextAt(fence, {"spec", "cause"}) == "its fan is on fire");
  CHECK(TextAt(fence, {"spec", "requestedBy"}) == "operator@desk");
  CHECK_THAT(rig.Said(), Catch::Contains("08:00:00.123  Fenced: a1: 2 volumes") &&
                             Catch::Contains(absl::StrCat("node ", kNode, " is fenced")) &&
                             Catch::Contains("lunkeeper unfence n1"));

  rig.lines.clear();
  CHECK(rig.Fence(kNode).ok());
  CHECK_THAT(rig.Said(),
             Catch::Contains("is there already, asked for by operator@desk: its fan is on fire") &&
                 Catch::Contains("is fenced"));
}

TEST_CASE("a fence that an array has not confirmed is not called one") {
  HandRig rig;
  const bool taken_up = GENERATE(true, false);
  if (taken_up)
    rig.Controller({{"phase", ToWord(Phase::kFencing)},
                    {"arrays", {{"a1", {{"generation", 7}}}, {"a2", {{"volumes", {"a2-v1"}}}}}}});
  const absl::Status status = rig.Fence("n1", absl::Seconds(1));
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK_THAT(std::string(status.message()),
             Catch::Contains("may still write") &&
                 Catch::Contains(taken_up ? "not confirmed yet: a2" : "no controller has taken it up"));
  CHECK_FALSE(rig.api.Get(rig.Path()).is_null());  // the request stands
}

TEST_CASE("a fence does not wait for an array that was taken out of the configuration") {
  HandRig rig;
  Json status = InForce();
  status["arrays"]["removed"]["volumes"] = {"removed-v1"};
  rig.Controller(status);
  CHECK(rig.Fence("n1", absl::Seconds(5)).ok());
  // What it cannot know of that array it does not promise.
  CHECK_THAT(rig.Said(), Catch::Contains("reaches what it had on a1 (2 volumes)\n") &&
                             Catch::Contains("NOT confirmed by removed (1 volumes)") &&
                             Catch::Contains("may still write there"));
}

TEST_CASE("a fence that no array has confirmed is not in force, whatever its phase") {
  HandRig rig;
  Json status = InForce();
  status["arrays"]["a1"].erase("generation");
  rig.Controller(status);
  const absl::Status refused = rig.Fence("n1", absl::Seconds(1));
  CHECK(absl::IsDeadlineExceeded(refused));
  CHECK_THAT(std::string(refused.message()),
             Catch::Contains("may still write") && Catch::Contains("not confirmed yet: a1"));
}

TEST_CASE("a node that nobody knows is refused, and nothing is left of the request") {
  HandRig rig;
  rig.Controller({{"phase", ToWord(Phase::kRefused)}});
  for (const std::string node : {"n9", "bare", "n9.00000000000000ff"}) {
    CAPTURE(node);
    const absl::Status status = rig.Fence(node);
    CHECK(absl::IsNotFound(status));
    CHECK_THAT(std::string(status.message()), Catch::Contains("there is no node " + node));
    CHECK(rig.api.Get(rig.Path("n9.00000000000000ff")).is_null());
  }
  CHECK(absl::IsNotFound(RequestManualUnfence(rig.Hand(), "n9")));
}

TEST_CASE("a fence is lifted by the node's name; one that waits for its node says so, and goes on waiting") {
  HandRig rig;
  const Json held = {{"metadata", {{"finalizers", {kFinalizer}}}},
                     {"spec", {{"requestedBy", "evidence"}}},
                     {"status", {{"phase", "AwaitingNode"}}}};
  rig.api.Put(rig.Path(), held);
  const absl::Status waiting = RequestManualUnfence(rig.Hand(absl::Seconds(1)), "n1");
  CHECK(absl::IsDeadlineExceeded(waiting));
  CHECK_THAT(std::string(waiting.message()),
             Catch::Contains("not lifted yet") && Catch::Contains("waiting for the node"));
  CHECK(absl::IsFailedPrecondition(rig.Fence("n1")));  // it is being lifted
  rig.Controller({});
  REQUIRE(Eventually([&] { return rig.api.Get(rig.Path()).is_null(); }));
  rig.api.Put(rig.Path(), held);
  CHECK(RequestManualUnfence(rig.Hand(), kNode).ok());
  CHECK_THAT(rig.Said(), Catch::Contains("may take volumes again"));
  CHECK(rig.api.Get(rig.Path()).is_null());
  CHECK(RequestManualUnfence(rig.Hand(), "n1").ok());
  CHECK_THAT(rig.Said(), Catch::Contains("node n1 is not fenced"));
}

TEST_CASE("a node is fenced although its old NodeFence goes while the request finds it") {
  HandRig rig;
  rig.api.Put(rig.Path(), {{"spec", {{"requestedBy", "evidence"}}}, {"status", {{"phase", "Moved"}}}});
  const std::string method = GENERATE("GET", "PATCH");
  const int calls = method == "GET" ? GENERATE(1, 2) : 1;
  int left = calls;
  rig.on_call = [&](const kube::Exchange& exchange) {
    if (exchange.method == method && exchange.path.find("/nodefences") != std::string::npos && left-- == 1)
      rig.api.Remove(rig.Path());
  };
  rig.Controller(InForce());
  CHECK(rig.Fence("n1").ToString() == "OK");
  CHECK(left <= 0);
  CHECK(rig.api.CountWrites("POST ") == 1);
  CHECK_THAT(rig.Said(), Catch::Contains("is fenced"));
}

TEST_CASE(
    "an old fence that only others' finalizers keep is in nobody's way, and they have some time first") {
  HandRig rig;
  rig.api.Put(rig.Path(), {{"metadata", {{"finalizers", {"others/audit"}}}}, {"status", InForce()}});
  rig.api.Merge(rig.Path(), {{"metadata", {{"deletionTimestamp", "2099-01-01T00:00:00Z"}}}});
  const Json old = rig.api.Get(rig.Path());
  const absl::Status waiting = rig.Fence("n1", absl::Seconds(1));
  CHECK(absl::IsFailedPrecondition(waiting));
  CHECK_THAT(std::string(waiting.message()), Catch::Contains("others/audit"));
  CHECK(rig.api.Get(rig.Path()) == old);

  rig.Controller(InForce(), false);
  ManualFenceIo io = rig.Hand();
  SECTION("they are removed after it") { io.others_time = absl::Milliseconds(300); }
  std::unique_ptr<Periodic> others;
  SECTION("they finish within it") {
    others = std::make_unique<Periodic>(absl::Milliseconds(300), [&] {
      if (TextAt(rig.api.Get(rig.Path()), {"metadata", "uid"}) == TextAt(old, {"metadata", "uid"}))
        rig.api.Remove(rig.Path());
    });
  }
  REQUIRE(RequestManualFence(io, {"n1", "its fan is on fire", "operator@desk"}).ok());
  const Json made = rig.api.Get(rig.Path());
  CHECK(TextAt(made, {"metadata", "uid"}) != TextAt(old, {"metadata", "uid"}));
  CHECK(TextAt(made, {"spec", "requestedBy"}) == "operator@desk");
}

TEST_CASE("all fences of a machine are asked to be lifted, also where the first one of them waits") {
  HandRig rig;
  const Json held = {{"metadata", {{"finalizers", {kFinalizer}}}}, {"status", {{"phase", "AwaitingNode"}}}};
  const std::string older = rig.Path("n1.00000000000000a0");
  rig.api.Put(older, held);
  rig.api.Put(rig.Path(), held);
  CHECK(absl::IsDeadlineExceeded(RequestManualUnfence(rig.Hand(absl::Seconds(1)), "n1")));
  for (const std::string& path : {older, rig.Path()})
    CHECK_FALSE(FieldAt(rig.api.Get(path), {"metadata", "deletionTimestamp"}).is_null());
}

TEST_CASE("a fence that is not lifted yet says which array it waits for, and what to do") {
  HandRig rig;
  const std::string waits = "looking again; waits for array a2, which is away";
  const Json older = {
      {"at", "2026-11-21T08:00:00.123Z"}, {"event", "Phase"}, {"text", "waiting for the node"}};
  const Json newest = {{"at", "2026-11-21T08:00:01.123Z"}, {"event", "Phase"}, {"text", waits}};
  rig.api.Put(rig.Path(), {{"metadata", {{"finalizers", {kFinalizer}}}},
                           {"status", {{"phase", "Reassessing"}, {"timeline", {older, newest}}}}});
  const absl::Status waiting = RequestManualUnfence(rig.Hand(absl::Seconds(1)), "n1");
  CHECK(absl::IsDeadlineExceeded(waiting));
  CHECK_THAT(std::string(waiting.message()), Catch::Contains("it is at \"" + waits + "\"") &&
                                                 Catch::Contains("take out of the configuration"));
}

TEST_CASE("a fence by evidence becomes the person's who asks for it, and no more goes by itself") {
  HandRig rig;
  const std::string owner = GENERATE(std::string("evidence"), std::string(kByTaint), std::string(kByMachine));
  rig.api.Put(rig.Path(), {{"spec", {{"requestedBy", owner}, {"cause", "it was silent"}, {"graceful", true}}},
                           {"status", InForce()}});
  // It has not closed the machine: that is still to be done, whatever the record says was reached before.
  const absl::Status waiting = rig.Fence("n1", absl::Seconds(1));
  CHECK_THAT(std::string(waiting.message()), Catch::Contains("no controller has taken it up"));
  rig.Controller(InForce());
  REQUIRE(rig.Fence("n1").ok());
  // It was asked for now, and not in two minutes.
  CHECK(FieldAt(rig.api.Get(rig.Path()), {"spec", "graceful"}) == false);
  CHECK(TextAt(rig.api.Get(rig.Path()), {"spec", "requestedBy"}) == "operator@desk");
}

TEST_CASE("a graceful fence asks the pods first, until somebody wants it at once") {
  HandRig rig;
  const auto graceful = [&] { return FieldAt(rig.api.Get(rig.Path()), {"spec", "graceful"}); };
  const auto fence = [&](bool gently) {
    return RequestManualFence(rig.Hand(absl::Seconds(1)), {kNode, "a new fan", "operator@desk", gently});
  };
  CHECK(absl::IsDeadlineExceeded(fence(true)));  // no controller is there to take it up
  CHECK(graceful() == true);
  CHECK(absl::IsDeadlineExceeded(fence(true)));
  CHECK(graceful() == true);
  rig.api.Merge(rig.Path(), {{"status", {{"phase", ToWord(Phase::kLeaving)}}}});
  CHECK(absl::IsDeadlineExceeded(fence(false)));
  CHECK(graceful() == false);
  // The person's own: nothing was reached without closing the machine.
  CHECK(TextAt(rig.api.Get(rig.Path()), {"status", "phase"}) == ToWord(Phase::kLeaving));
  CHECK(absl::IsDeadlineExceeded(fence(true)));
  CHECK(graceful() == false);  // it comes already
}

TEST_CASE("a graceful fence of what failover moves in good order waits for the pods, too") {
  HandRig rig;
  rig.api.Put(rig.Path(), {{"spec", {{"requestedBy", "evidence"}, {"graceful", true}}},
                           {"status", {{"phase", ToWord(Phase::kLeaving)}}}});
  CHECK(absl::IsDeadlineExceeded(
      RequestManualFence(rig.Hand(absl::Seconds(1)), {kNode, "a new fan", "operator@desk", true})));
  CHECK(FieldAt(rig.api.Get(rig.Path()), {"spec", "graceful"}) == true);
  CHECK(TextAt(rig.api.Get(rig.Path()), {"spec", "requestedBy"}) == "operator@desk");
}

TEST_CASE("a node whose CSINode names another machine is fenced by its own name") {
  HandRig rig;
  const Json driver = {{"name", "csi.lunkeeper.io"}, {"nodeID", kNode}};
  rig.api.Put("/apis/storage.k8s.io/v1/csinodes/n2", {{"spec", {{"drivers", Json::array({driver})}}}});
  rig.api.Put("/api/v1/nodes/n2", Json::object());
  CHECK(absl::IsDeadlineExceeded(rig.Fence("n2", absl::Seconds(1))));
  CHECK(rig.api.Get(rig.Path()).is_null());
  CHECK_FALSE(rig.api.Get(rig.Path("n2.all")).is_null());
}

TEST_CASE("a cluster without failover says what can be done instead") {
  HandRig rig;
  rig.api.Forget("/apis/lunkeeper.io");
  const absl::Status status = rig.Fence("n1");
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("--array"));
}

}  // namespace lunkeeper::fencing
