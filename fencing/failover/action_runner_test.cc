// Which of the core's calls are made when their turn comes.

#include "fencing/failover/action_runner.h"

#include <atomic>
#include <catch2/catch.hpp>

#include "absl/synchronization/mutex.h"
#include "base/testing/test_host.h"
#include "devices/array/testing/fake_array.h"
#include "fencing/failover/testing/fake_api.h"

namespace lunkeeper::fencing {
namespace {

std::unique_ptr<kube::KubeClient> Connect(kube::KubeConfig config) {
  config.connections = kConnections;
  return *kube::MakeKubeClient(config);
}

PutNodeFence NewFence(const std::string& node) {
  NodeFence fence;
  fence.node = NodeId(node);
  return {fence};
}

// One runner, with what it needs. The hub's workers use the runner, so it is made after it.
struct RunnerFixture {
  explicit RunnerFixture(absl::Duration timeout = absl::Seconds(10)) : first_timeout(timeout) {}

  // Waits for the answer.
  Outcome RunAction(const Action& action) {
    runner.RunAction(action, NowOn(RealExecutor()));
    CHECK(testing::Eventually([&] { return HasAnswered(action.id); }));
    return OutcomeOf(action.id);
  }
  Outcome OutcomeOf(uint64_t action) {
    CHECK(HasAnswered(action));
    absl::MutexLock lock(&mutex);
    return outcomes[action];
  }
  bool HasAnswered(uint64_t action) {
    absl::MutexLock lock(&mutex);
    return outcomes.contains(action);
  }
  // So many deletions of pods that no more can run. A webhook holds them until `over`.
  void HoldDeletions() {
    HoldDeletionsIn("db");
    for (uint64_t i = 0; i < kDeletionsAtOnce; ++i) Delete(100 + i, "held" + std::to_string(i));
    CHECK(testing::Eventually([&] { return held == kDeletionsAtOnce; }));
  }
  void Delete(uint64_t action, const std::string& pod, const std::string& space = "db") {
    runner.RunAction({action, DeletePod{PodId(space + "/" + pod), Uid(pod), Grace::kNone}},
                     NowOn(RealExecutor()));
  }
  void HoldDeletionsIn(const std::string& space) { HoldCalls("DELETE", "/" + space + "/"); }
  // A webhook holds the calls with `part` in their path until `over`.
  void HoldCalls(const std::string& method, const std::string& part) {
    on_call = [this, method, part](kube::Exchange& exchange) {
      if (exchange.method != method || exchange.path.find(part) == std::string::npos) return;
      ++held;
      while (!over && exchange.Hold(absl::Milliseconds(20))) {
      }
    };
    runner.AllowWritesUntil(NowOn(RealExecutor()) + 60_s);
  }

  // The test's server has no subresources.
  bool AnswerCall(kube::Exchange& exchange) const {
    on_call(exchange);
    if (!exchange.path.ends_with("/status")) return false;
    exchange.Reply(kube::Json::object());
    return true;
  }

  const absl::Duration first_timeout;
  absl::Mutex mutex;
  std::map<uint64_t, Outcome> outcomes ABSL_GUARDED_BY(mutex);
  std::atomic<size_t> held = 0;  // calls, also ones that ended since
  std::atomic<bool> over = false;
  std::function<void(kube::Exchange&)> on_call = [](auto&) {};
  FakeApi api{[](const std::string&) {}, [this](kube::Exchange& exchange) { return AnswerCall(exchange); }};
  std::unique_ptr<kube::KubeClient> client = Connect(api.Config());
  KubeActions kube{*client,        {"kube-system", "lunkeeper-failover"}, "replica-1", absl::Seconds(4),
                   RealExecutor(), {.first_timeout = first_timeout}};
  std::unique_ptr<lunkeeper::Arrays> arrays = MakeOneArray("fake", std::make_shared<FakeArray>());
  FenceBoard board;
  ObjectCache objects{[](const auto&) {}};
  ActionRunner runner{{.kube = kube,
                       .arrays = hub,
                       .board = board,
                       .objects = objects,
                       .self = "replica-1",
                       .timeline_of = [](const NodeId&) { return Timeline(); },
                       .answered =
                           [this](const Action& action, const Answer& answer, Instant) {
                             absl::MutexLock lock(&mutex);
                             outcomes[action.id] = answer.done.outcome;
                           },
                       .ask_replicas = {},
                       .probed = [](const auto&) {},
                       .executor = RealExecutor(),
                       .prober = nullptr}};
  ArrayHub hub{*arrays, [](const ArrayPoll&) {}, RealExecutor()};
};

}  // namespace

TEST_CASE("a call whose turn comes when this replica leads no more is dropped, and its object stays") {
  const std::string path = "/api/v1/namespaces/db/pods/db-0";
  RunnerFixture f;
  f.api.Put(path, kube::Json::object());
  const DeletePod deletion{PodId("db/db-0"), Uid(kube::TextAt(f.api.Get(path), {"metadata", "uid"}))};
  f.runner.AllowWritesUntil(Instant());
  CHECK(f.RunAction({1, deletion}) == Outcome::kFailed);
  CHECK_FALSE(f.api.Get(path).is_null());
  f.runner.AllowWritesUntil(NowOn(RealExecutor()) + 60_s);
  CHECK(f.RunAction({2, deletion}) == Outcome::kOk);
  CHECK(f.api.Get(path).is_null());
}

TEST_CASE(
    "a Job's pod is marked as failed before it is deleted by force, and stays if the lease is lost then") {
  const std::string path = "/api/v1/namespaces/db/pods/job-x";
  std::vector<std::string> calls;
  bool lost = true;
  RunnerFixture f;
  f.api.Put(path, kube::Json::object());
  PodFacts facts;
  facts.uid = Uid(kube::TextAt(f.api.Get(path), {"metadata", "uid"}));
  facts.owner_kind = "Job.batch";
  f.objects.OnPod("db/job-x", std::make_shared<PodFacts>(facts));
  f.on_call = [&](kube::Exchange& exchange) {
    calls.push_back(exchange.method + " " + exchange.path);
    if (lost) f.runner.AllowWritesUntil(Instant());
  };
  f.runner.AllowWritesUntil(NowOn(RealExecutor()) + 60_s);
  CHECK(f.RunAction({1, DeletePod{PodId("db/job-x"), facts.uid}}) == Outcome::kFailed);
  CHECK(calls == std::vector<std::string>{"PATCH " + path + "/status"});
  lost = false;
  f.runner.AllowWritesUntil(NowOn(RealExecutor()) + 60_s);
  CHECK(f.RunAction({2, DeletePod{PodId("db/job-x"), facts.uid}}) == Outcome::kOk);
  CHECK(calls.size() == 3);
  CHECK(calls.back() == "DELETE " + path);
  CHECK(f.RunAction({3, DeletePod{PodId("db/job-x"), facts.uid, Grace::kOrdinary}}) == Outcome::kGone);
  CHECK(calls.size() == 4);  // the node ends it, and says how
}

TEST_CASE("what is to be known of a node is read although a webhook holds the deletion of many pods") {
  RunnerFixture f;
  f.HoldDeletions();
  const Instant asked = NowOn(RealExecutor());
  CHECK(f.RunAction({1, ReadKubelet{NodeId("n2.b"), asked}}) == Outcome::kGone);
  CHECK(NowOn(RealExecutor()) - asked < 2_s);
  f.over = true;
}

TEST_CASE("a pod does not wait behind those of another namespace that are deleted for the first time") {
  RunnerFixture f(absl::Seconds(1));
  f.HoldDeletions();
  for (uint64_t i = 1; i <= 3 * kDeletionsAtOnce; ++i) f.Delete(1000 + i, "more" + std::to_string(i));
  f.Delete(1, "web-0", "web");
  CHECK(testing::Eventually([&] { return f.HasAnswered(1); }));
  CHECK(f.held <= 2 * kDeletionsAtOnce);
  f.over = true;
}

// In the end each of these has 8 s.
TEST_CASE("a pod does not wait behind deletions that have timed out before") {
  RunnerFixture f(absl::Seconds(1));
  f.HoldDeletionsIn("db");
  for (uint64_t round = 1; round <= 3; ++round) {
    for (uint64_t i = 0; i < kDeletionsAtOnce; ++i) f.Delete(1000 * round + i, "held" + std::to_string(i));
    for (uint64_t i = 0; i < kDeletionsAtOnce; ++i)
      REQUIRE(testing::Eventually([&] { return f.HasAnswered(1000 * round + i); }));
  }
  for (uint64_t i = 0; i < kDeletionsAtOnce; ++i) f.Delete(4000 + i, "held" + std::to_string(i));
  CHECK(f.RunAction({1, DeletePod{PodId("web/web-0"), Uid("web-0"), Grace::kNone}}) == Outcome::kGone);
  for (uint64_t i = 0; i < kDeletionsAtOnce; ++i) CHECK_FALSE(f.HasAnswered(4000 + i));
  f.over = true;
}

TEST_CASE("a call that is asked for anew before its turn is made once, and each action is answered") {
  RunnerFixture f;
  f.HoldDeletions();
  for (uint64_t action = 1; action <= 3; ++action) f.Delete(action, "waiting");
  for (uint64_t action = 1; action <= 2; ++action) CHECK(f.OutcomeOf(action) == Outcome::kFailed);
  f.Delete(4, "another");
  f.over = true;
  CHECK(testing::Eventually([&] { return f.HasAnswered(3) && f.HasAnswered(4); }));
  CHECK(f.held == kDeletionsAtOnce + 2);
  CHECK(f.OutcomeOf(3) == Outcome::kGone);
}

TEST_CASE("what is to be known of a node is read although a webhook holds the NodeFences of many others") {
  RunnerFixture f;
  f.HoldCalls("POST", "/nodefences");
  for (uint64_t i = 0; i < kOtherCallsAtOnce; ++i)
    f.runner.RunAction({100 + i, NewFence("n" + std::to_string(i) + ".b")}, NowOn(RealExecutor()));
  REQUIRE(testing::Eventually([&] { return f.held == kOtherCallsAtOnce; }));
  CHECK(f.RunAction({1, ReadKubelet{NodeId("new.b"), NowOn(RealExecutor())}}) == Outcome::kGone);
  CHECK_FALSE(f.HasAnswered(100));
  f.over = true;
}

TEST_CASE("a NodeFence is written although a webhook holds the taints of many silent plugins") {
  RunnerFixture f;
  f.HoldCalls("PATCH", "/nodes/");
  NodeFacts facts;
  facts.version = Version("1");
  for (uint64_t i = 0; i < kOtherCallsAtOnce; ++i) {
    const std::string node = "n" + std::to_string(i);
    f.objects.OnNode(node, std::make_shared<NodeFacts>(facts));
    f.runner.RunAction(
        {100 + i, SetTaint{NodeName(node), facts.version, "silent", OurTaint::kPluginNotReady}},
        NowOn(RealExecutor()));
  }
  REQUIRE(testing::Eventually([&] { return f.held > 0; }));
  CHECK(f.RunAction({1, NewFence("new.b")}) == Outcome::kOk);
  CHECK_FALSE(f.HasAnswered(100));
  f.over = true;
}

TEST_CASE("a runner that stops does not wait for what a webhook holds") {
  RunnerFixture f;
  f.HoldDeletions();
  const Instant began = NowOn(RealExecutor());
  f.runner.Stop();
  CHECK(NowOn(RealExecutor()) - began < 5_s);
}

TEST_CASE("an event that a webhook holds keeps no replica from its end") {
  RunnerFixture f;
  f.HoldCalls("POST", "/events");
  const Instant began = NowOn(RealExecutor());
  {
    const auto sending = RealExecutor().StartThread([&] { f.kube.RecordEvent({.kind = "Pod"}); });
    REQUIRE(testing::Eventually([&] { return f.held == 1; }));
    f.kube.EndActions();
  }
  CHECK(NowOn(RealExecutor()) - began < 5_s);
}

TEST_CASE("a replica that does not lead may take the lease, or nobody ever would") {
  RunnerFixture f;
  f.runner.AllowWritesUntil(Instant());
  CHECK(f.RunAction({1, WriteLease{}}) == Outcome::kOk);
}

}  // namespace lunkeeper::fencing
