// What an action asks of the API server, and what its answer says.

#include "fencing/failover/kube_actions.h"

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <utility>

#include "fencing/failover/facts.h"
#include "fencing/failover/testing/fake_api.h"

namespace lunkeeper::fencing {
namespace {

const kube::LeaseName kOwnLease{"kube-system", "lunkeeper-failover"};

// An API server, and a replica's actions on it. `first` is asked before it.
struct ActionsAtApi {
  explicit ActionsAtApi(
      FakeApi::Handler first = [](kube::Exchange&) { return false; }, CallRules rules = {})
      : api([](const std::string&) {}, std::move(first)),
        actions(*client, kOwnLease, "replica-1", absl::Seconds(4), RealExecutor(), std::move(rules)) {}

  // As the watch brings it.
  NodeFence See(const std::string& path) {
    const RecordFacts seen = ReadRecord(api.Get(path));
    actions.NoteRecord(seen.fence.node, &seen);
    return seen.fence;
  }

  FakeApi api;
  std::unique_ptr<kube::KubeClient> client = api.Client();
  KubeActions actions;
};

NodeFence ManualFence() {
  NodeFence fence;
  fence.node = NodeId("n1.00000000000000aa");
  fence.requested_by = "an operator";
  fence.volumes[ArrayId("a1")] = {VolumeId("a1-v1")};
  return fence;
}

constexpr auto kFirstTry = absl::Milliseconds(150);
// Of one webhook, and of two, one after the other.
constexpr std::array kHolds = {absl::Milliseconds(350), absl::Milliseconds(1000)};

// Webhooks hold each write for so long, and let it pass then if its caller still waits.
FakeApi::Handler HoldsWrites(absl::Duration hold) {
  return [hold](kube::Exchange& exchange) {
    if (exchange.method == "GET") return false;
    const bool waits = exchange.Hold(hold), of_status = exchange.path.ends_with("/status");
    if (!waits) exchange.Cut();
    if (waits && of_status) exchange.Reply(kube::Json::object());  // the test's server has no subresources
    return !waits || of_status;
  };
}

// Not at once, but when it is repeated.
bool IsDoneLater(const std::function<Outcome()>& write) {
  CHECK(write() == Outcome::kFailed);
  for (int tries = 1; tries < 8; ++tries)
    if (write() == Outcome::kOk) return true;
  return false;
}

std::string PathOf(const NodeFence& fence) {
  return "/apis/lunkeeper.io/v1alpha1/nodefences/" + fence.node.value();
}

}  // namespace

TEST_CASE("a kubelet is read from the API server itself: its lease and whether its Node is ready") {
  const NodeId node("n1.00000000000000aa");
  ActionsAtApi at;
  auto& [api, client, actions] = at;
  CHECK(actions.ReadKubelet({node, {}}).done.outcome == Outcome::kGone);

  const auto put = [&](const std::string& name, const std::string& ready) {
    const kube::Json conditions = {{{"type", "Ready"}, {"status", ready}}};
    api.Put("/api/v1/nodes/" + name, {{"status", {{"conditions", conditions}}}});
  };
  put("n0", "True");
  put("n1", "Unknown");
  Answer answer = actions.ReadKubelet({node, {}});
  REQUIRE(answer.done.kubelet);
  CHECK(answer.done.kubelet->renewal.empty());
  CHECK_FALSE(answer.done.kubelet->ready);

  put("n1", "True");
  const std::string leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/";
  api.Put(leases + "n0", {{"spec", {{"renewTime", "of another node"}}}});
  api.Put(leases + "n1", {{"spec", {{"renewTime", "2026-11-23T08:00:10.000000Z"}}}});
  answer = actions.ReadKubelet({node, {}});
  REQUIRE(answer.done.outcome == Outcome::kOk);
  REQUIRE(answer.done.kubelet);
  CHECK(answer.done.kubelet->renewal == Version("2026-11-23T08:00:10.000000Z"));
  CHECK(answer.done.kubelet->ready);
}

TEST_CASE("a pod is deleted as the one that was seen, and without a grace period only after a fence") {
  const std::string path = "/api/v1/namespaces/db/pods/db-0";
  std::vector<kube::Json> bodies;
  ActionsAtApi at([&](kube::Exchange& exchange) {
    if (exchange.method == "DELETE") bodies.push_back(*kube::ParseJson(exchange.body));
    return false;
  });
  auto& [api, client, actions] = at;
  api.Put(path, kube::Json::object());
  const PodId pod("db/db-0");
  const Uid uid(kube::TextAt(api.Get(path), {"metadata", "uid"}));
  CHECK(actions.RemovePod({pod, Uid("of its predecessor"), Grace::kNone}).done.outcome == Outcome::kConflict);
  CHECK_FALSE(api.Get(path).is_null());
  CHECK(actions.RemovePod({pod, uid, Grace::kOrdinary}).done.outcome == Outcome::kOk);
  CHECK(actions.RemovePod({pod, uid, Grace::kNone}).done.outcome == Outcome::kGone);
  REQUIRE(bodies.size() == 3);
  CHECK_FALSE(bodies[1].contains("gracePeriodSeconds"));
  CHECK(bodies[2]["gracePeriodSeconds"] == 0);
}

TEST_CASE("a Job's pod is marked as failed; that the role does not allow it does not keep the pod") {
  const auto [answer, expected] = GENERATE(
      std::pair(200, Outcome::kOk), std::pair(403, Outcome::kOk), std::pair(422, Outcome::kOk),
      std::pair(404, Outcome::kGone), std::pair(409, Outcome::kConflict), std::pair(503, Outcome::kFailed));
  const std::string path = "/api/v1/namespaces/db/pods/job-x";
  std::vector<std::string> calls;
  kube::Json status;
  ActionsAtApi at([&, answer = answer](kube::Exchange& exchange) {
    if (exchange.method == "GET") return false;
    calls.push_back(exchange.method + " " + exchange.path);
    status = *kube::ParseJson(exchange.body);
    answer == 200 ? exchange.Reply(kube::Json::object()) : exchange.Refuse(answer, "", "no");
    return true;
  });
  auto& [api, client, actions] = at;
  api.Put(path, kube::Json::object());
  const std::string uid = kube::TextAt(api.Get(path), {"metadata", "uid"});
  const DeletePod deletion{PodId("db/job-x"), Uid(uid), Grace::kNone};
  CHECK(actions.FailPod(deletion).done.outcome == expected);
  CHECK(calls == std::vector<std::string>{"PATCH " + path + "/status"});
  CHECK(kube::TextAt(status, {"status", "phase"}) == "Failed");
  CHECK(kube::TextAt(status, {"metadata", "uid"}) == uid);
  CHECK(kube::TextAt(status["status"]["conditions"][0], {"type"}) == "DisruptionTarget");
}

TEST_CASE("a record and a taint are written only over what was seen, so that a person's change comes first") {
  ActionsAtApi at;
  auto& [api, client, actions] = at;
  NodeFence fence;
  fence.node = NodeId("n1.00000000000000aa");
  const std::string record = PathOf(fence);
  const auto metadata = [&](const std::string& path, const char* field) {
    return kube::TextAt(api.Get(path), {"metadata", field});
  };
  REQUIRE(actions.PutRecord({fence}, {}).done.outcome == Outcome::kOk);
  fence.uid = Uid(metadata(record, "uid")), fence.version = Version(metadata(record, "resourceVersion"));
  api.Merge(record, {{"metadata", {{"labels", {{"a", "person's"}}}}}});
  CHECK(actions.PutRecord({fence}, {}).done.outcome == Outcome::kConflict);
  CHECK(actions.RemoveRecord({fence.node, fence.uid, fence.version}).done.outcome == Outcome::kConflict);

  const std::string node = "/api/v1/nodes/n1";
  api.Put(node, kube::Json::object());
  const SetTaint taint{NodeName("n1"), Version(metadata(node, "resourceVersion")), fence.node.value()};
  const Uid uid(metadata(node, "uid"));
  CHECK(actions.WriteTaint(taint, Uid("of its predecessor"), "").done.outcome == Outcome::kConflict);
  // The kubelet's own writes keep no taint away.
  api.Merge(node, {{"status", {{"conditions", kube::Json::array()}}}});
  CHECK(actions.WriteTaint(taint, uid, "").done.outcome == Outcome::kOk);
  CHECK(actions.WriteTaint(taint, uid, "").done.outcome == Outcome::kConflict);
}

TEST_CASE("a webhook that refuses a write with a conflict has refused it, and nothing conflicts") {
  ActionsAtApi at;
  auto& [api, client, actions] = at;
  NodeFence fence;
  fence.node = NodeId("n1.00000000000000aa");
  const auto outcome = [&] {
    const Answer answer = actions.PutRecord({fence}, {});
    if (answer.done.outcome == Outcome::kOk) fence.version = answer.done.version;
    return answer.done.outcome;
  };
  api.Refuse("POST /apis/lunkeeper.io", 1);
  CHECK(outcome() == Outcome::kFailed);
  REQUIRE(outcome() == Outcome::kOk);
  api.Refuse("PATCH /apis/lunkeeper.io", 1);
  CHECK(outcome() == Outcome::kFailed);
  CHECK(outcome() == Outcome::kOk);

  const std::string node = "/api/v1/nodes/n1";
  api.Put(node, kube::Json::object());
  const auto metadata = [&](const char* field) { return kube::TextAt(api.Get(node), {"metadata", field}); };
  const SetTaint taint{NodeName("n1"), Version(metadata("resourceVersion")), fence.node.value()};
  api.Refuse("PATCH " + node, 1);
  CHECK(actions.WriteTaint(taint, Uid(metadata("uid")), "").done.outcome == Outcome::kFailed);
  CHECK(actions.WriteTaint(taint, Uid(metadata("uid")), "").done.outcome == Outcome::kOk);
}

TEST_CASE("finalizers that others have put on a NodeFence stay until these remove them") {
  std::atomic<int> reads = 0;
  ActionsAtApi at([&](kube::Exchange& exchange) {
    reads += exchange.method == "GET" ? 1 : 0;
    return false;
  });
  auto& [api, client, actions] = at;
  NodeFence fence = ManualFence();
  const std::string path = PathOf(fence);
  const auto finalizers = [&] { return kube::FieldAt(api.Get(path), {"metadata", "finalizers"}); };
  const auto look = [&] {
    const NodeFence seen = at.See(path);
    fence.uid = seen.uid, fence.version = seen.version;
  };
  SECTION("a person made it: it gets ours, once, in the first write") {
    api.Put(path, {{"metadata", {{"name", fence.node.value()}, {"finalizers", {"others/audit"}}}}});
  }
  SECTION("it is ours, and somebody has put one on it since") {
    fence.requested_by.clear();
    REQUIRE(actions.PutRecord({fence}, {}).done.outcome == Outcome::kOk);
    api.Merge(path, {{"metadata", {{"finalizers", {"others/audit", kFinalizer}}}}});
  }
  look();
  const Answer put = actions.PutRecord({fence}, {});
  REQUIRE(put.done.outcome == Outcome::kOk);
  CHECK(finalizers() == kube::Json{"others/audit", kFinalizer});
  CHECK(api.CountWrites("PATCH ") == 1);
  fence.version = put.done.version;
  REQUIRE(actions.PutRecord({fence}, {}).done.outcome == Outcome::kOk);  // before a watch tells of the first
  CHECK(finalizers() == kube::Json{"others/audit", kFinalizer});
  CHECK(reads == 0);
  look();
  CHECK_FALSE(ReadRecord(api.Get(path)).IsReleased());
  CHECK(actions.RemoveRecord({fence.node, fence.uid, fence.version}).done.outcome == Outcome::kOk);
  CHECK(finalizers() == kube::Json{"others/audit"});
  CHECK(ReadRecord(api.Get(path)).IsReleased());
  api.Merge(path, {{"metadata", {{"finalizers", nullptr}}}});
}

TEST_CASE("a write that a webhook holds for longer than the first try lasts is done by a later try") {
  ActionsAtApi at(HoldsWrites(kHolds[GENERATE(0, 1)]), {.first_timeout = kFirstTry});
  auto& [api, client, actions] = at;
  const std::string node = "/api/v1/nodes/n1", pod = "/api/v1/namespaces/db/pods/db-0";
  const auto metadata = [&](const std::string& path, const char* field) {
    return kube::TextAt(api.Get(path), {"metadata", field});
  };
  NodeFence fence;
  fence.node = NodeId("n1.00000000000000aa");
  SECTION("a NodeFence is made, and removed, which takes two writes") {
    const std::string record = PathOf(fence);
    CHECK(IsDoneLater([&] { return actions.PutRecord({fence}, {}).done.outcome; }));
    fence.uid = Uid(metadata(record, "uid")), fence.version = Version(metadata(record, "resourceVersion"));
    CHECK(actions.PutRecord({fence}, {}).done.outcome == Outcome::kOk);  // it has the time that was needed
    CHECK(IsDoneLater([&] {
      const RemoveNodeFence call{fence.node, Uid(metadata(record, "uid")),
                                 Version(metadata(record, "resourceVersion")),
                                 !metadata(record, "deletionTimestamp").empty()};
      return actions.RemoveRecord(call).done.outcome;
    }));
    CHECK(api.Get(record).is_null());
  }
  SECTION("a Node is tainted") {
    api.Put(node, kube::Json::object());
    const SetTaint taint{NodeName("n1"), Version(metadata(node, "resourceVersion")), fence.node.value()};
    CHECK(
        IsDoneLater([&] { return actions.WriteTaint(taint, Uid(metadata(node, "uid")), "").done.outcome; }));
  }
  SECTION("a pod is deleted") {
    api.Put(pod, kube::Json::object());
    const DeletePod call{PodId("db/db-0"), Uid(metadata(pod, "uid")), Grace::kNone};
    CHECK(IsDoneLater([&] { return actions.RemovePod(call).done.outcome; }));
  }
}

TEST_CASE("a Job's pod is deleted behind a webhook that holds its status and its deletion each time") {
  const std::string pod = "/api/v1/namespaces/db/pods/job-x";
  ActionsAtApi at(HoldsWrites(kHolds[0]), {.first_timeout = kFirstTry});
  auto& [api, client, actions] = at;
  api.Put(pod, kube::Json::object());
  const DeletePod call{PodId("db/job-x"), Uid(kube::TextAt(api.Get(pod), {"metadata", "uid"})), Grace::kNone};
  CHECK(IsDoneLater([&actions = actions, &call] {
    const Outcome failed = actions.FailPod(call).done.outcome;
    return failed == Outcome::kOk ? actions.RemovePod(call).done.outcome : failed;
  }));
}

TEST_CASE("a replica that loses the lease between two calls of one action writes no more") {
  std::atomic<bool> leads = true;
  ActionsAtApi at(
      [&](kube::Exchange& exchange) {
        if (exchange.method == "DELETE") leads = false;
        return false;
      },
      {.may_write = [&] { return leads.load(); }});
  auto& [api, client, actions] = at;
  NodeFence fence;
  fence.node = NodeId("n1.00000000000000aa");
  REQUIRE(actions.PutRecord({fence}, {}).done.outcome == Outcome::kOk);
  const std::string path = PathOf(fence);
  const auto remove = [&] {
    const kube::Json record = api.Get(path);
    return actions
        .RemoveRecord({fence.node, Uid(kube::TextAt(record, {"metadata", "uid"})),
                       Version(kube::TextAt(record, {"metadata", "resourceVersion"})), !leads})
        .done.outcome;
  };
  CHECK(remove() == Outcome::kFailed);
  CHECK(api.CountWrites("PATCH ") == 0);
  CHECK(remove() == Outcome::kFailed);
  CHECK(api.CountWrites("DELETE ") == 1);
  CHECK_FALSE(api.Get(path).is_null());
}

TEST_CASE("a person's NodeFence that has changed since, or is gone, gets neither status nor finalizer") {
  ActionsAtApi at;
  auto& [api, client, actions] = at;
  NodeFence fence = ManualFence();
  const std::string path = PathOf(fence);
  api.Put(path, kube::Json::object());
  const NodeFence seen = at.See(path);
  fence.uid = seen.uid, fence.version = seen.version;
  api.Merge(path, {{"metadata", {{"finalizers", {"others/audit"}}}}});
  CHECK(actions.PutRecord({fence}, {}).done.outcome == Outcome::kConflict);
  const NodeFence changed = at.See(path);  // which the core has not taken up yet
  CHECK(actions.PutRecord({fence}, {}).done.outcome == Outcome::kConflict);
  CHECK(kube::FieldAt(api.Get(path), {"metadata", "finalizers"}) == kube::Json{"others/audit"});
  CHECK(kube::FieldAt(api.Get(path), {"status"}).is_null());
  api.Remove(path);
  fence.version = changed.version;
  CHECK(actions.PutRecord({fence}, {}).done.outcome == Outcome::kGone);
}

TEST_CASE("a person's NodeFence that no watch has brought is read after the first write, and then written") {
  ActionsAtApi at;
  auto& [api, client, actions] = at;
  NodeFence fence = ManualFence();
  const std::string path = PathOf(fence);
  api.Put(path, {{"metadata", {{"finalizers", {"others/audit"}}}}});
  fence.version = ReadRecord(api.Get(path)).fence.version;
  CHECK(actions.PutRecord({fence}, {}).done.outcome == Outcome::kFailed);
  CHECK(actions.PutRecord({fence}, {}).done.outcome == Outcome::kOk);
  CHECK(kube::FieldAt(api.Get(path), {"metadata", "finalizers"}) == kube::Json{"others/audit", kFinalizer});
}

TEST_CASE("the lease is written by the version that the decision rests on, and given up by who has it") {
  const std::string lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/lunkeeper-failover";
  ActionsAtApi at;
  auto& [api, client, first] = at;
  KubeActions second(*client, kOwnLease, "replica-2", absl::Seconds(4));
  const auto holder = [&] { return kube::TextAt(api.Get(lease), {"spec", "holderIdentity"}); };
  const Answer taken = first.RenewLease({});
  REQUIRE(taken.done.outcome == Outcome::kOk);
  REQUIRE(first.RenewLease({taken.done.version, {}}).done.outcome == Outcome::kOk);
  // It has seen the renewal since it decided to take the lease.
  REQUIRE(second.ReadLease().ok());
  CHECK(second.RenewLease({taken.done.version, {}}).done.outcome == Outcome::kConflict);
  second.LeaveLease();
  CHECK(holder() == "replica-1");
  first.LeaveLease();
  CHECK(holder().empty());
}

TEST_CASE(
    "which nodes died of a volume is stored on the PersistentVolume that was seen, and taken away again") {
  const std::string path = "/api/v1/persistentvolumes/pvc-1";
  ActionsAtApi at;
  auto& [api, client, actions] = at;
  api.Put(path, {{"metadata", {{"annotations", {{"keep", "me"}}}}}});
  const auto charge = [&](const ChargedNodes& nodes, const std::string& version) {
    return actions.ChargeVolume({VolumeId("a1-v1"), nodes}, "pvc-1", Version(version)).done.outcome;
  };
  const auto version = [&] { return kube::TextAt(api.Get(path), {"metadata", "resourceVersion"}); };
  const auto marked = [&] {
    return kube::TextAt(api.Get(path), {"metadata", "annotations", kMountDeathsKey});
  };
  const ChargedNodes nodes = {NodeId("n1.a"), NodeId("n2.b")};
  CHECK(charge(nodes, version()) == Outcome::kOk);
  CHECK(marked() == "n1.a,n2.b");
  CHECK(charge({}, "1") == Outcome::kConflict);  // a person has changed it since
  CHECK(marked() == "n1.a,n2.b");
  CHECK(charge({}, version()) == Outcome::kOk);
  CHECK(kube::FieldAt(api.Get(path), {"metadata", "annotations"}) == kube::Json{{"keep", "me"}});
  CHECK(actions.ChargeVolume({VolumeId("a1-v1"), nodes}, "gone", Version("1")).done.outcome ==
        Outcome::kGone);
}

}  // namespace lunkeeper::fencing
