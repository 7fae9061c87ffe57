// Failover as a whole: nodes that send heartbeats, an array and an API server in memory.

#include "fencing/failover/failover.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "fencing/failover/facts.h"
#include "fencing/failover/testing/failover_world.h"

namespace lunkeeper::fencing {

TEST_CASE(
    "which pods use a volume is said once every watch has stood for ten seconds, and not while one is down") {
  FailoverWorld world;
  const VolumeId volume = world.AddPod("db-0", "n1");
  Failover& failover = world.Start();
  const auto use = [&](const std::string& node) { return failover.FindUse(node, volume).use; };
  REQUIRE(Comes([&] { return use("n1") == PodUse::kSome; }));
  const absl::Time in_step = absl::Now();
  CHECK(use("n2") == PodUse::kUnknown);
  REQUIRE(Comes([&] { return use("n2") != PodUse::kUnknown; }));
  CHECK(absl::Now() - in_step > absl::Seconds(8));
  const KnownUse known = failover.FindUse("n2", volume);
  CHECK(known.use == PodUse::kNone);
  CHECK(known.names.size() == 1);
  // As soon as the pod is there, since the question waits for what the watches have brought.
  world.api.Merge(PodPath("db-0"), {{"spec", {{"nodeName", "n2"}}}});
  CHECK(Comes([&] { return use("n2") == PodUse::kSome && use("n1") == PodUse::kNone; }));
  world.api.SetDown(true);
  CHECK(Comes([&] { return use("n1") == PodUse::kUnknown; }));
}

TEST_CASE(
    "a node that loses power: recorded, fenced, tainted, its pod moved, in this order; and all taken back") {
  VolumeId volume;
  std::atomic<int> wrong = 0;
  Metrics metrics("controller");
  FailoverWorld world;  // last: its threads use the others until it is gone
  volume = world.AddPod("db-0", "n1");
  world.on_write = [&](const std::string& write) {
    const bool fenced = world.IsFenced("n1"), holds = world.Holds("n1", volume);
    if (absl::StartsWith(write, absl::StrCat("POST ", kRecords)) && fenced) ++wrong;
    if (absl::StartsWith(write, "PATCH /api/v1/nodes/n1") && !fenced && holds) ++wrong;
    if (absl::StartsWith(write, "DELETE " + PodPath("db-0")) && (!fenced || holds)) ++wrong;
  };
  Failover& failover = world.Start();
  const auto shows = [&](const std::string& line) {
    failover.ReportMetrics(metrics);
    return absl::StrContains(metrics.ToText(), line);
  };
  REQUIRE(Comes([&] { return world.IsLed(); }));
  CHECK(Comes(
      [&] { return shows("lunkeeper_failover_evidence_nodes{channel=\"network\",state=\"arrives\"} 5\n"); }));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  CHECK(wrong == 0);
  CHECK(world.TaintOf("n1") == "00000000000000aa");
  REQUIRE(Comes([&] {
    const auto phase = TextAt(world.api.Get(RecordPath(FailoverWorld::IdOf("n1"))), {"status", "phase"});
    return phase == "Moved" || phase == "AwaitingNode";
  }));
  const Json record = world.api.Get(RecordPath(FailoverWorld::IdOf("n1")));
  CHECK(TextAt(record, {"spec", "requestedBy"}) == "evidence");
  // A watch may be quicker than the answer to the write that it shows, so that what follows stands before it.
  std::vector<std::string> wanted = {"LastHeard", "Decided", "Fencing", "Fenced", "Deleting"};
  for (const TimelineEntry& entry : ReadRecord(record).timeline)
    if (!wanted.empty() && entry.event == wanted.front()) wanted.erase(wanted.begin());
  CHECK(wanted.empty());  // all came, in this order
  CHECK(world.api.CountWrites("DELETE " + PodPath("db-0")) == 1);
  CHECK(Comes([&] { return shows("lunkeeper_failover_phase_seconds_count{phase=\"fence\"} 1\n"); }));
  CHECK(Comes([&] { return shows("lunkeeper_failover_nodefences{phase=\"AwaitingNode\"} 1\n"); }));

  world.PowerOn("n1");
  REQUIRE(Comes([&] { return world.api.Get(RecordPath(FailoverWorld::IdOf("n1"))).is_null(); }));
  REQUIRE(Comes([&] { return world.TaintOf("n1").empty(); }));
  CHECK_FALSE(world.IsFenced("n1"));
  CHECK(world.Runs("db-0", "n2"));
  CHECK(Comes([&] { return shows("lunkeeper_failover_nodefences{phase=\"AwaitingNode\"} 0\n"); }));
}

TEST_CASE("of two replicas one acts; when it goes, the other carries on") {
  FailoverWorld world;
  world.AddPod("db-0", "n1");
  world.array->HoldDrains(true);
  world.Start("replica-1");
  world.Start("replica-2");
  REQUIRE(Comes([&] { return !world.LeaseHolder().empty(); }));
  const std::string first = world.LeaseHolder();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return world.IsFenced("n1"); }));  // begun, and not over
  world.StopReplica(first == "replica-1" ? 0 : 1);
  REQUIRE(Comes([&] { return !world.LeaseHolder().empty() && world.LeaseHolder() != first; }));
  CHECK(world.Runs("db-0", "n1"));
  world.array->HoldDrains(false);
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  CHECK(world.api.CountWrites("DELETE " + PodPath("db-0")) == 1);
  CHECK(world.api.CountWrites(absl::StrCat("POST ", kRecords)) == 1);
}

TEST_CASE("a NodeFence made by hand fences a healthy node, and its deletion gives it back") {
  FailoverWorld world;
  const VolumeId volume = world.AddPod("db-0", "n1");
  world.Start();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.api.Put(RecordPath(FailoverWorld::IdOf("n1")), {{"spec", {{"cause", "a test"}}}});
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  CHECK_FALSE(world.Holds("n1", volume));
  REQUIRE(Comes([&] {
    return !FieldAt(world.api.Get(RecordPath(FailoverWorld::IdOf("n1"))), {"metadata", "finalizers"}).empty();
  }));
  world.api.Merge(RecordPath(FailoverWorld::IdOf("n1")),
                  {{"metadata", {{"deletionTimestamp", "2026-11-21T00:00:00Z"}}}});
  REQUIRE(Comes([&] {
    return world.api.Get(RecordPath(FailoverWorld::IdOf("n1"))).is_null() && world.TaintOf("n1").empty();
  }));
  CHECK_FALSE(world.IsFenced("n1"));
}

TEST_CASE("a machine that a person fences loses all that its nodes have, and gets nothing as another one") {
  FailoverWorld world;
  const VolumeId moved = world.AddPod("db-0", "n1");
  const VolumeId lone = world.AddPod("lone", "n1");
  world.api.Merge(PodPath("lone"), {{"metadata", {{"ownerReferences", nullptr}}}});
  const VolumeId free = world.array->CreateVolume({"free", 1 << 20, {}, {}, {}, {}})->id;
  const NodeId hostile("n1.00000000000000ff");
  const VolumeId taken = world.array->CreateVolume({"taken", 1 << 20, {}, {}, {}, {}})->id;
  REQUIRE(world.array->AcquireGrant({taken, hostile}, absl::ZeroDuration()).ok());
  world.Start();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  const std::string record = RecordPath(FailoverWorld::IdOf("n1"));
  world.api.Put(record, {{"spec", {{"cause", "it was broken into"}}}});
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  for (const VolumeId& volume : {moved, lone}) CHECK_FALSE(world.Holds("n1", volume));
  CHECK(Comes([&] { return world.array->ListGrants({taken, {}})->empty(); }));
  CHECK(
      absl::IsFailedPrecondition(world.array->AcquireGrant({free, hostile}, absl::ZeroDuration()).status()));
  REQUIRE(Comes([&] { return TextAt(world.api.Get(record), {"status", "phase"}) == "Moved"; }));
  world.api.Merge(record, {{"metadata", {{"deletionTimestamp", "2026-11-21T00:00:00Z"}}}});
  REQUIRE(Comes([&] { return world.api.Get(record).is_null(); }));
  CHECK(world.array->AcquireGrant({free, hostile}, absl::ZeroDuration()).ok());
}

TEST_CASE("a machine whose Node is deleted, or that is fenced, has to prove itself anew, once") {
  FailoverWorld world;
  world.AddPod("db-0", "n1");
  world.Start();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  CHECK(world.Distrusted().empty());
  world.api.Put(RecordPath(FailoverWorld::IdOf("n1")), {{"spec", {{"cause", "a test"}}}});
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  CHECK(world.Distrusted() == std::vector<std::string>{"n1"});
  world.api.Remove(NodePath("n3"));
  CHECK(Comes([&] { return world.Distrusted() == std::vector<std::string>{"n1", "n3"}; }));
}

TEST_CASE("a volume of a pod without an owner stays with its dead node until another node asks for it") {
  FailoverWorld world;
  const VolumeId volume = world.AddPod("lone", "n1");
  world.api.Merge(PodPath("lone"), {{"metadata", {{"ownerReferences", nullptr}}}});
  Failover& failover = world.Start();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return Says(failover, "node n1", "hung or dead"); }));
  CHECK_FALSE(world.IsFenced("n1"));
  CHECK(world.array->AcquireGrant({volume, FailoverWorld::IdOf("n2")}, absl::Seconds(30)).ok());
  CHECK(world.IsFenced("n1"));
  CHECK(world.api.CountWrites("DELETE " + PodPath("lone")) == 0);
}

TEST_CASE("a hundred pods with two hundred volumes leave a dead node together") {
  absl::Mutex mutex;
  absl::Time decided, last;
  int calls = 0;            // by failover, from the decision on; not to renew its lease
  int told = 0, early = 0;  // events of pods; of them before the last deletion
  FailoverWorld world;      // after them, as above
  for (int i = 0; i < 100; ++i) world.AddPod(absl::StrCat("db-", i), "n1", 2);
  world.on_write = [&](const std::string& write) {
    absl::MutexLock lock(&mutex);
    if (absl::StartsWith(write, absl::StrCat("POST ", kRecords))) decided = absl::Now();
    const bool upkeep = absl::StrContains(write, "/leases/") || absl::StrContains(write, "/volumelocks/");
    if (decided != absl::Time() && !upkeep) ++calls;
    if (absl::StartsWith(write, "POST /apis/events.k8s.io/v1/namespaces/db/")) ++told;
    if (absl::StartsWith(write, "DELETE /api/v1/namespaces/db/pods/")) last = absl::Now(), early = told;
  };
  world.Start();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return world.api.CountWrites("DELETE /api/v1/namespaces/db/pods/") == 100; }));
  REQUIRE(Comes([&] { return world.api.CountWrites("POST /apis/events.k8s.io") >= 100; }));
  absl::MutexLock lock(&mutex);
  WARN("decided to last deletion: " << absl::FormatDuration(last - decided)
                                    << "; writes a pod: " << calls / 100.0);
  CHECK(last - decided < absl::Seconds(10));
  if (last - decided < absl::Seconds(2)) CHECK(early == 0);  // so long events wait
  CHECK(calls < 250);
}

TEST_CASE("a node whose plugin is silent takes no new pods until it is heard; its other taints stay") {
  FailoverWorld world;
  world.AddPod("db-0", "n1");
  const Json other = {{{"key", "role"}, {"value", "db"}, {"effect", "NoSchedule"}}};
  world.api.Merge(NodePath("n1"), {{"spec", {{"taints", other}}}});
  const auto taints = [&] {
    return kube::ToText(FieldAt(world.api.Get(NodePath("n1")), {"spec", "taints"}));
  };
  const std::string before = taints(),
                    after = kube::ToText(WithTaint(before, kPluginSilent, kPluginTaintKey));
  Settings settings;
  settings.plugin_not_ready = 1_s;
  world.Start("replica-1", settings);
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.SetHeard("n1", false);
  REQUIRE(Comes([&] { return taints() == after; }));
  world.SetHeard("n1", true);
  REQUIRE(Comes([&] { return taints() == before; }));
  CHECK(world.api.CountWrites("PATCH /api/v1/nodes/") == 2);
  CHECK(world.api.CountWrites(absl::StrCat("POST ", kRecords)) == 0);
  CHECK(world.Runs("db-0", "n1"));
}

}  // namespace lunkeeper::fencing
