// NodeFences, taints and pods on a real API server, with the chart's own CustomResourceDefinition.

#include <unistd.h>
#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/subprocess.h"
#include "fencing/core/words.h"
#include "fencing/failover/facts.h"
#include "fencing/failover/kube_actions.h"
#include "fencing/failover/manual_fence.h"
#include "fencing/failover/volume_lock.h"
#include "fencing/kube/testing/api_fixture.h"
#include "fencing/kube/testing/real_api_fixture.h"

namespace lunkeeper::fencing {
namespace {

using testing::Eventually;

using kube::FieldAt;
using kube::Json;
using kube::Soon;

constexpr char kFolder[] = LUNKEEPER_SOURCE_DIR;

// kubectl with what it is given on its command line.
std::string Kubectl(const kube::RealApi& api, std::vector<std::string> arguments) {
  const char* bin = std::getenv("LUNKEEPER_KUBE_BIN");
  const auto config = api.Config();
  std::vector<std::string> command = {
      absl::StrCat(bin == nullptr ? absl::StrCat(kFolder, "/.cache/kube/bin") : bin, "/kubectl"),
      "--server=" + config.server, "--certificate-authority=" + config.ca_file,
      "--token=" + kube::ReadToken(config).value(), "--cache-dir=/dev/null"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const auto result = RunCommand(command, absl::Now() + absl::Seconds(30));
  INFO(result.status());
  REQUIRE(result.ok());
  INFO(result->output);
  REQUIRE(result->exit_code == 0);
  return result->output;
}

// The chart's template without what Helm would put in: labels, and its conditions.
void InstallDefinition(const kube::RealApi& api, kube::KubeClient& client, const kube::Resource& kind) {
  std::ifstream from(absl::StrCat(kFolder, "/charts/lunkeeper/templates/", kind.plural, ".yaml"));
  const std::string path = absl::StrCat("/tmp/lunkeeper-crd-", ::getpid(), ".yaml");
  {
    std::ofstream to(path);
    for (std::string line; std::getline(from, line);)
      if (!absl::StrContains(line, "{{")) to << line << "\n";
  }
  Kubectl(api, {"apply", "-f", path});
  std::remove(path.c_str());
  REQUIRE(Eventually([&] {
    return client
        .ListPage(
            {kind}, {}, [](const Json&) {}, Soon())
        .ok();
  }));
}

// NodeFences at an API server of the test's own.
struct StoredRecords {
  kube::RealApi api;
  std::unique_ptr<kube::KubeClient> client;
  std::unique_ptr<KubeActions> actions;

  StoredRecords() {
    api.Start();
    client = api.Client();
    InstallDefinition(api, *client, kNodeFences);
    actions = std::make_unique<KubeActions>(*client, kube::LeaseName{"default", "lunkeeper-failover"}, "test",
                                            absl::Seconds(4));
  }
  RecordFacts Read(const std::string& name) {
    const auto object = client->Get({kNodeFences, "", name}, Soon());
    if (!object.ok()) return {};
    RecordFacts facts = ReadRecord(*object);
    actions->NoteRecord(NodeId(name), &facts);  // as the watch does
    return facts;
  }
  Outcome Put(const NodeFence& fence, const Timeline& timeline = {}) {
    return actions->PutRecord(PutNodeFence{fence}, timeline).done.outcome;
  }
  Outcome Remove(const NodeFence& fence, const Version& version) {
    return actions->RemoveRecord(RemoveNodeFence{fence.node, fence.uid, version}).done.outcome;
  }
};

NodeFence Sample() {
  NodeFence fence;
  fence.node = NodeId("n1.00000000000000aa");
  fence.cause = "dead or fully isolated";
  fence.volumes[ArrayId("a1")] = {VolumeId("a1-v1"), VolumeId("a1-v2")};
  fence.volumes[ArrayId("a2")];
  fence.phase = Phase::kFencing;
  return fence;
}

}  // namespace

TEST_CASE("a NodeFence goes to a real API server and comes back as it was") {
  StoredRecords records;
  const Timeline timeline = {{absl::FromUnixMillis(1'800'000'000'123), "Decided", "a test"}};
  NodeFence fence = Sample();
  const Answer created = records.actions->PutRecord(PutNodeFence{fence}, timeline);
  INFO(created.status);
  REQUIRE(created.done.outcome == Outcome::kOk);
  CHECK(records.Put(fence, timeline) == Outcome::kConflict);
  const RecordFacts stored = records.Read(fence.node.value());
  fence.uid = stored.fence.uid;
  fence.version = created.done.version;
  CHECK(stored.fence == fence);
  CHECK(stored.timeline == timeline);

  fence.generations[ArrayId("a1")] = 7;
  fence.phase = Phase::kMoved;
  const Answer changed = records.actions->PutRecord(PutNodeFence{fence}, timeline);
  REQUIRE(changed.done.outcome == Outcome::kOk);
  CHECK(records.Put(fence, timeline) == Outcome::kConflict);
  fence.version = changed.done.version;
  CHECK(records.Read(fence.node.value()).fence == fence);
  CHECK(absl::StrContains(Kubectl(records.api, {"get", "nodefences"}), "dead or fully isolated"));

  CHECK(records.Remove(fence, stored.fence.version) == Outcome::kConflict);
  CHECK(records.Remove(fence, fence.version) == Outcome::kOk);
  CHECK(records.Read(fence.node.value()).fence.uid.empty());
  CHECK(records.Remove(fence, fence.version) == Outcome::kGone);
}

TEST_CASE("a NodeFence that a person made stays theirs, and its deletion waits for us") {
  StoredRecords records;
  const NodeId manual("n2.00000000000000bb");
  const Json bare = {{"apiVersion", "lunkeeper.io/v1alpha1"},
                     {"kind", "NodeFence"},
                     {"metadata", {{"name", manual.value()}}}};
  REQUIRE(records.client->Create({kNodeFences, "", ""}, bare, Soon()).ok());
  NodeFence asked = records.Read(manual.value()).fence;
  CHECK(asked.requested_by == "an operator");
  asked.volumes[ArrayId("a1")];
  REQUIRE(records.Put(asked) == Outcome::kOk);
  const auto turned = records.client->Patch({kNodeFences, "", manual.value()},
                                            {{"spec", {{"requestedBy", "evidence"}}}}, {}, Soon());
  CHECK(absl::IsInvalidArgument(turned.status()));
  REQUIRE(records.client->Delete({kNodeFences, "", manual.value()}, {}, std::nullopt, Soon()).ok());
  asked = records.Read(manual.value()).fence;
  CHECK(asked.deleting);
  CHECK(records.Put(asked) == Outcome::kOk);
  asked = records.Read(manual.value()).fence;
  CHECK(records.Remove(asked, asked.version) == Outcome::kOk);
  CHECK(records.Read(manual.value()).fence.uid.empty());
}

TEST_CASE(
    "a finalizer of others stays on a NodeFence of a real API server, and keeps it when it is over for us") {
  StoredRecords records;
  NodeFence fence = Sample();
  fence.requested_by = "an operator";  // our own has our finalizer from the start
  const kube::ObjectRef object{kNodeFences, "", fence.node.value()};
  const auto look = [&] {
    const RecordFacts found = records.Read(fence.node.value());
    fence.uid = found.fence.uid, fence.version = found.fence.version;
    return found.finalizers;
  };
  const Json theirs = {{"metadata", {{"finalizers", {"others.example/audit"}}}}};
  Json made = theirs;
  made["apiVersion"] = "lunkeeper.io/v1alpha1", made["kind"] = "NodeFence";
  made["metadata"]["name"] = fence.node.value();
  REQUIRE(records.client->Create({kNodeFences, "", ""}, made, Soon()).ok());
  look();
  REQUIRE(records.Put(fence) == Outcome::kOk);
  CHECK(look() == Finalizers{"others.example/audit", kFinalizer});
  REQUIRE(records.Put(fence) == Outcome::kOk);
  CHECK(look() == Finalizers{"others.example/audit", kFinalizer});
  CHECK(records.Remove(fence, fence.version) == Outcome::kOk);
  CHECK(look() == Finalizers{"others.example/audit"});
  CHECK(records.Read(fence.node.value()).IsReleased());
  CHECK(records.Put(Sample()) == Outcome::kConflict);
  REQUIRE(records.client->Patch(object, {{"metadata", {{"finalizers", nullptr}}}}, {}, Soon()).ok());
  CHECK(records.Read(fence.node.value()).fence.uid.empty());
}

TEST_CASE("a VolumeLock goes to a real API server and stays there as it was written") {
  kube::RealApi api;
  api.Start();
  const auto client = api.Client();
  InstallDefinition(api, *client, kVolumeLocks);
  VolumeLock lock{"pv-1", "db/data-db-0", false, {}};
  lock.holders.push_back(
      {NodeId("n1.00000000000000aa"),
       Access::kExclusive,
       7,
       absl::FromUnixSeconds(1'800'000'000),
       {"db/db-0"},
       {"/dev/loop3", {{"10.0.0.5:3260", PathState::kConnected}}, {"/var/lib/kubelet/staged"}}});
  const Json status = StatusOf(lock);
  const Json object = {{"apiVersion", "lunkeeper.io/v1alpha1"},
                       {"kind", "VolumeLock"},
                       {"metadata", {{"name", "rack1-v0000000000000001"}}},
                       {"status", status}};
  const auto stored = client->Create({kVolumeLocks, "", ""}, object, Soon());
  INFO(stored.status());
  REQUIRE(stored.ok());
  const LockFacts facts = ReadLock(*stored);
  CHECK(facts.digest == DigestOf(status));  // or it would be written again for ever
  REQUIRE(facts.since.size() == 1);
  CHECK(facts.since.front() == std::make_pair(Generation{7}, lock.holders.front().since));
  const std::string shown = Kubectl(api, {"get", "volumelocks"});
  for (const char* word :
       {"VOLUME", "SINCE", "rack1-v0000000000000001", "pv-1", "n1", "db/db-0", "exclusive"})
    CHECK_THAT(shown, Catch::Contains(word));
}

TEST_CASE("a fence by hand is asked for, and taken back, at a real API server") {
  kube::RealApi api;
  api.Start();
  const auto client = api.Client();
  InstallDefinition(api, *client, kNodeFences);
  const Json driver = {{"name", "csi.lunkeeper.io"}, {"nodeID", "n1.00000000000000aa"}};
  const auto csi_node = client->Create(
      {kube::kCsiNodes, "", ""}, {{"metadata", {{"name", "n1"}}}, {"spec", {{"drivers", {driver}}}}}, Soon());
  INFO(csi_node.status());
  REQUIRE(csi_node.ok());
  std::string said;
  const auto hand = [&](absl::Duration limit) {
    return ManualFenceIo{*client, absl::Now() + limit, [&](const std::string& line) { said += line + "\n"; }};
  };
  CHECK(absl::IsNotFound(RequestManualFence(hand(absl::Seconds(20)), {"n2", "a test", "operator@desk"})));
  const absl::Status unanswered =
      RequestManualFence(hand(absl::Seconds(10)), {"n1", "a test", "operator@desk"});
  CHECK_THAT(std::string(unanswered.message()), Catch::Contains("no controller has taken it up"));
  const auto asked = client->Get({kNodeFences, "", "n1.00000000000000aa"}, Soon());
  REQUIRE(asked.ok());
  CHECK(ReadRecord(*asked).fence.cause == "a test");
  CHECK(ReadRecord(*asked).fence.requested_by == "operator@desk");
  const absl::Status lifted = RequestManualUnfence(hand(absl::Seconds(20)), "n1");
  INFO(lifted);
  CHECK(lifted.ok());
  CHECK_THAT(said, Catch::Contains("may take volumes again"));
}

TEST_CASE("a NodeFence that asks for what cannot be is refused by a real API server") {
  kube::RealApi api;
  api.Start();
  const auto client = api.Client();
  InstallDefinition(api, *client, kNodeFences);
  const auto make = [&](const Json& spec, const char* name = "n1.00000000000000aa") {
    return client
        ->Create({kNodeFences, "", ""},
                 {{"apiVersion", "lunkeeper.io/v1alpha1"},
                  {"kind", "NodeFence"},
                  {"metadata", {{"name", name}}},
                  {"spec", spec}},
                 Soon())
        .status();
  };
  for (const Json& spec :
       {Json{{"cause", 7}}, Json{{"cause", std::string(1025, 'x')}}, Json{{"graceful", "gently"}},
        Json{{"requestedBy", std::string(254, 'x')}}, Json("a text")}) {
    CAPTURE(spec.dump().substr(0, 40));
    CHECK(absl::IsInvalidArgument(make(spec)));
  }
  REQUIRE(make({{"cause", "a test"}}).ok());
  for (const Json& change : {Json{{"cause", "another"}}, Json{{"graceful", true}}, Json(nullptr)}) {
    CAPTURE(change.dump());
    const auto edited =
        client->Patch({kNodeFences, "", "n1.00000000000000aa"}, {{"spec", change}}, {}, Soon());
    CHECK(absl::IsInvalidArgument(edited.status()));
  }
  const auto request = [&](const char* who) {
    return client
        ->Patch({kNodeFences, "", "n1.00000000000000aa"}, {{"spec", {{"requestedBy", who}}}}, {}, Soon())
        .status();
  };
  // A person may take over a fence by evidence, and wants it at once.
  REQUIRE(make({{"requestedBy", "evidence"}, {"graceful", true}}, "n1.00000000000000bb").ok());
  const auto taken = client->Patch({kNodeFences, "", "n1.00000000000000bb"},
                                   {{"spec", {{"requestedBy", "desk"}, {"graceful", false}}}}, {}, Soon());
  CHECK(taken.status() == absl::OkStatus());
  CHECK(request("operator@desk").ok());
  for (const char* who : {"evidence", kByTaint, kByMachine}) CHECK(absl::IsInvalidArgument(request(who)));
}

TEST_CASE("a taint on a real Node joins the others and goes without them, if the Node is as it was") {
  kube::RealApi api;
  api.Start();
  const auto client = api.Client();
  KubeActions actions(*client, {"default", "lunkeeper-failover"}, "test", absl::Seconds(4));
  const Json other = {{{"key", "other"}, {"value", "x"}, {"effect", "NoSchedule"}}};
  auto node = client->Create({kube::kNodes, "", ""},
                             {{"metadata", {{"name", "n1"}}}, {"spec", {{"taints", other}}}}, Soon());
  REQUIRE(node.ok());
  const NodeFacts before = ReadNode(*node);
  const SetTaint taint{NodeName("n1"), before.version, "n1.00000000000000aa"};
  const Answer tainted = actions.WriteTaint(taint, before.uid, before.taints);
  INFO(tainted.status);
  REQUIRE(tainted.done.outcome == Outcome::kOk);
  CHECK(actions.WriteTaint(taint, before.uid, before.taints).done.outcome == Outcome::kConflict);
  node = client->Get({kube::kNodes, "", "n1"}, Soon());
  const NodeFacts after = ReadNode(*node);
  CHECK(after.version == tainted.done.version);
  CHECK(TaintIn(after.taints) == "00000000000000aa");
  REQUIRE(
      actions.WriteTaint(SetTaint{NodeName("n1"), after.version, ""}, after.uid, after.taints).done.outcome ==
      Outcome::kOk);
  node = client->Get({kube::kNodes, "", "n1"}, Soon());
  // The API server itself adds one to a new Node.
  CHECK(FieldAt(*node, {"spec", "taints"}) == WithTaint(after.taints, ""));
  CHECK(FieldAt(*node, {"spec", "taints"})[0] == other[0]);
}

}  // namespace lunkeeper::fencing
