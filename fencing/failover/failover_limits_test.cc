// Failover as a whole, where something keeps it from acting: faults, limits, people.

#include "fencing/failover/failover.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fencing/failover/allow_volume.h"
#include "fencing/failover/facts.h"
#include "fencing/failover/testing/failover_world.h"

namespace lunkeeper::fencing {

TEST_CASE("conflicts and errors of the API server delay a failover and change nothing of it") {
  FailoverWorld world;
  world.AddPod("db-0", "n1");
  world.Start();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.api.Refuse(absl::StrCat("POST ", kRecords), 2);
  world.api.Refuse("PATCH /api/v1/nodes/n1", 2);
  world.api.Refuse("DELETE " + PodPath("db-0"), 2);
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  CHECK(world.api.CountWrites("DELETE " + PodPath("db-0")) == 1);
}

// As after a restore of etcd whose revision has passed by then the last one that the watch knew.
TEST_CASE("a record that changes while its watch says nothing is listed when writes of it conflict") {
  FailoverWorld world;
  world.AddPod("db-0", "n1");
  world.Start();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.PowerOff("n1");
  const std::string record = RecordPath(FailoverWorld::IdOf("n1"));
  const auto phase = [&] { return TextAt(world.api.Get(record), {"status", "phase"}); };
  REQUIRE(Comes([&] { return phase() == "AwaitingNode"; }));
  world.api.SilenceWatches(kRecords);
  world.api.Merge(record, {{"metadata", {{"annotations", {{"restored", "yes"}}}}}});
  world.SetDevices("n1", {});
  world.PowerOn("n1");
  CHECK(Comes([&] { return world.api.Get(record).is_null() && world.TaintOf("n1").empty(); }));
}

TEST_CASE("a taint that a restore of etcd brings back is removed, also where no watch ever saw it go") {
  FailoverWorld world;
  world.AddPod("db-0", "n1");
  world.Start();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.PowerOff("n1");
  const std::string record = RecordPath(FailoverWorld::IdOf("n1"));
  REQUIRE(Comes([&] { return TextAt(world.api.Get(record), {"status", "phase"}) == "AwaitingNode"; }));
  world.api.Refuse("PATCH /api/v1/nodes/n1", 1000);
  world.SetDevices("n1", {});
  world.PowerOn("n1");
  REQUIRE(Comes([&] { return world.api.Get(record).is_null(); }));
  world.api.TakeCopy();
  world.api.SilenceWatches("/api/v1/nodes");
  world.api.Refuse("PATCH /api/v1/nodes/n1", 0);
  REQUIRE(Comes([&] { return world.TaintOf("n1").empty(); }));
  world.api.RestoreCopy();
  CHECK_FALSE(world.TaintOf("n1").empty());
  CHECK(Comes([&] { return world.TaintOf("n1").empty(); }));
}

TEST_CASE("a pod that goes while its watch says nothing is listed when its deletion finds none, or another") {
  const bool replaced = GENERATE(true, false);
  FailoverWorld world;
  world.AddPod("db-0", "n1");
  world.Start();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.api.SilenceWatches("/api/v1/pods");
  if (!replaced) world.api.RunPodsOn("");
  world.api.Remove(PodPath("db-0"));
  world.PowerOff("n1");
  const std::string record = RecordPath(FailoverWorld::IdOf("n1"));
  const auto phase = [&] { return TextAt(world.api.Get(record), {"status", "phase"}); };
  REQUIRE(Comes([&] { return phase() == "Evacuating"; }));
  CHECK(Comes([&] { return phase() != "Evacuating"; }));
  if (replaced) CHECK(world.Runs("db-0", "n2"));
}

TEST_CASE("a Node whose taints change while its watch says nothing is listed when the taint conflicts") {
  FailoverWorld world;
  world.AddPod("db-0", "n1");
  world.Start();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.api.SilenceWatches("/api/v1/nodes");
  const Json other = {{"key", "others/check"}, {"effect", "NoSchedule"}};
  world.api.Merge("/api/v1/nodes/n1", {{"spec", {{"taints", Json::array({other})}}}});
  world.PowerOff("n1");
  CHECK(Comes([&] { return world.Runs("db-0", "n2"); }));
  CHECK_FALSE(world.TaintOf("n1").empty());
  const Json taints = FieldAt(world.api.Get("/api/v1/nodes/n1"), {"spec", "taints"});
  CHECK(std::find(taints.begin(), taints.end(), other) != taints.end());
}

TEST_CASE("without the CustomResourceDefinition nothing is done, and a node that dies is left alone") {
  Metrics metrics("controller");
  FailoverWorld world;
  world.AddPod("db-0", "n1");
  world.api.Forget(kRecords);
  Failover& failover = world.Start();
  const auto shows = [&](const std::string& line) {
    failover.ReportMetrics(metrics);
    return absl::StrContains(metrics.ToText(), line);
  };
  REQUIRE(Comes([&] { return shows("lunkeeper_failover_leading 1"); }));
  world.PowerOff("n1");
  const absl::Time dead = absl::Now();
  REQUIRE(Comes([&] { return absl::Now() - dead > absl::Seconds(4); }));
  CHECK(shows("lunkeeper_failover_synced 0"));
  CHECK_FALSE(world.IsFenced("n1"));
  world.api.Forget("");
  CHECK(Comes([&] { return world.Runs("db-0", "n2"); }));
}

TEST_CASE("a replica that has seen no array since it started lets its lease run out, until it sees one") {
  constexpr char kRenewals[] = "PATCH /apis/coordination.k8s.io";
  FailoverWorld world;
  world.array->FailWith(absl::UnavailableError("no way to it from here"));
  world.Start();
  REQUIRE(Comes([&] { return world.api.CountWrites(kRenewals) > 2; }));
  // It renews each second, and gives up after five without an array.
  size_t renewals = 0;
  absl::Time since = absl::Now();
  CHECK(Comes([&] {
    const size_t now = world.api.CountWrites(kRenewals);
    if (std::exchange(renewals, now) != now) since = absl::Now();
    return absl::Now() - since > absl::Seconds(4);
  }));
  world.array->FailWith(absl::OkStatus());
  CHECK(Comes([&] { return world.api.CountWrites(kRenewals) > renewals; }));
}

TEST_CASE("a pod that is left alone on a fenced node is told so, once") {
  constexpr char kEvents[] = "POST /apis/events.k8s.io/v1/namespaces/db/";
  FailoverWorld world;
  world.AddPod("db-0", "n1");
  world.AddPod("lone", "n1");
  world.api.Merge(PodPath("lone"), {{"metadata", {{"ownerReferences", nullptr}}}});
  world.Start();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  CHECK(Comes([&] { return world.api.CountWrites(kEvents) == 2; }));  // one of them to the pod that moved
  CHECK(world.api.CountWrites("DELETE " + PodPath("lone")) == 0);
}

TEST_CASE("a node that only the array hears is held, and fenced when the array hears it no more") {
  FailoverWorld world;
  const VolumeId volume = world.AddPod("db-0", "n1");
  world.HeartbeatOnArray("n1", true);
  Failover& failover = world.Start();
  const auto says = [&](const std::string& text) {
    for (const std::string& line : failover.ReportStatus())
      if (absl::StartsWith(line, "node n1") && absl::StrContains(line, text)) return true;
    return false;
  };
  REQUIRE(Comes([&] { return world.IsLed(); }));
  REQUIRE(Comes([&] { return says("heartbeat on array fake 0."); }));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return says("cut off from the control plane; its workload may be fine"); }));
  const absl::Time silent = absl::Now();
  REQUIRE(Comes([&] { return absl::Now() - silent > absl::Seconds(5); }));  // twice what it takes without
  CHECK_FALSE(world.IsFenced("n1"));
  CHECK(world.Holds("n1", volume));
  world.HeartbeatOnArray("n1", false);
  CHECK(Comes([&] { return world.Runs("db-0", "n2"); }));
}

TEST_CASE("a replica that does not lead says which one to ask") {
  FailoverWorld world;
  Failover& first = world.Start("replica-1");
  REQUIRE(Comes([&] { return Says(first, "this replica leads", ""); }));
  Failover& second = world.Start("replica-2");
  CHECK(Comes([&] { return Says(second, "replica-1 leads", "ask that one"); }));
}

TEST_CASE("a leader that cannot watch any more shows in the metrics that it does not act") {
  Metrics metrics("controller");
  FailoverWorld world;
  Failover& failover = world.Start();
  const auto shows = [&](const std::string& line) {
    failover.ReportMetrics(metrics);
    return absl::StrContains(metrics.ToText(), line);
  };
  REQUIRE(
      Comes([&] { return shows("lunkeeper_failover_leading 1") && shows("lunkeeper_failover_synced 1"); }));
  world.api.Forget("/api/v1/namespaces");  // refused when the watch is next renewed
  REQUIRE(Comes([&] { return Says(failover, "this replica leads", "not watched yet"); }));
  CHECK(Comes([&] { return shows("lunkeeper_failover_synced 0"); }));
  world.api.Forget("");
  CHECK(Comes([&] { return shows("lunkeeper_failover_synced 1"); }));
}

TEST_CASE("dry run and pause say what they hold back, and nothing is done") {
  Metrics metrics("controller");  // outlives the replicas, whose threads fill it in
  FailoverWorld world;
  world.AddPod("db-0", "n1");
  Settings settings;
  const bool dry = GENERATE(true, false);
  (dry ? settings.dry_run : settings.paused) = true;
  Failover& failover = world.Start("replica-1", settings);
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.PowerOff("n1");
  const std::string said = dry ? "dry run: would be failed over" : "not failed over: failover is paused";
  CHECK(Comes([&] { return Says(failover, "node n1", said); }));
  const std::string gauge = "lunkeeper_failover_held_back_nodes " + std::string(dry ? "0\n" : "1\n");
  CHECK(Comes([&] {
    failover.ReportMetrics(metrics);
    return absl::StrContains(metrics.ToText(), gauge) &&
           absl::StrContains(metrics.ToText(), "lunkeeper_failover_paused 1\n");
  }));
  CHECK(Comes([&] { return world.IsOnLease("nothing is begun on evidence"); }));
  CHECK_FALSE(world.IsFenced("n1"));
  CHECK(world.api.CountWrites(absl::StrCat("POST ", kRecords)) == 0);
  CHECK(world.api.CountWrites("DELETE ") == 0);
}

TEST_CASE("a pause and a dry run end while the controller runs, and it moves what they held back") {
  Metrics metrics("controller");  // outlives the replicas, whose threads fill it in
  FailoverWorld world;
  world.AddPod("db-0", "n1");
  Settings settings;
  const bool dry = GENERATE(true, false);
  (dry ? settings.dry_run : settings.paused) = true;
  Failover& failover = world.Start("replica-1", settings);
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return Says(failover, "node n1", dry ? "dry run" : "failover is paused"); }));
  failover.ChangeSettings(FailoverWorld::Adapt(Settings()));
  CHECK(Comes([&] { return world.Runs("db-0", "n2"); }));
  CHECK(Comes([&] {  // nothing says any more that it is held back
    failover.ReportMetrics(metrics);
    return absl::StrContains(metrics.ToText(), "lunkeeper_failover_held_back_nodes 0\n") &&
           !Says(failover, "node n1", "paused") && !Says(failover, "node n1", "dry run");
  }));
}

TEST_CASE("a volume that nodes died of is not moved, which is told, until a person allows it") {
  Metrics metrics("controller");
  FailoverWorld world;
  const VolumeId held = world.AddPod("db-0", "n1");
  world.AddPod("db-1", "n1");
  const std::string path = "/api/v1/persistentvolumes/pv-data0-db-0";
  const auto mark = [&](const Json& nodes) {
    world.api.Merge(path, {{"metadata", {{"annotations", {{kMountDeathsKey, nodes}}}}}});
  };
  mark("n4.00000000000000aa,n5.00000000000000aa");
  Failover& failover = world.Start();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return world.Runs("db-1", "n2"); }));
  CHECK(Says(failover, "volume " + held.value(), "lunkeeper allow " + held.value()));
  CHECK(Comes([&] {
    failover.ReportMetrics(metrics);
    return absl::StrContains(metrics.ToText(), "lunkeeper_failover_volumes_held_back 1\n");
  }));
  CHECK(world.Runs("db-0", "n1"));
  CHECK(world.Holds("n1", held));
  REQUIRE(
      AllowVolumes(*world.clients.front(), {held.value()}, absl::Now() + absl::Seconds(30), [](const auto&) {
      }).ok());
  CHECK(Comes([&] { return world.Runs("db-0", "n2"); }));
}

TEST_CASE("a node that another controller hears is not fenced, which is told, until nobody hears it") {
  std::atomic<bool> hears = true;
  FailoverWorld world;
  world.ask_replicas = [&](const NodeId&, const auto& answered) {
    answered({.answered = 1, .silent = 1, .heard_by = hears ? "replica-2" : ""});
  };
  world.AddPod("db-0", "n1");
  Failover& failover = world.Start();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return Says(failover, "node n1", "its heartbeats reach replica-2"); }));
  CHECK_FALSE(world.IsFenced("n1"));
  hears = false;
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  std::string asked;
  for (const TimelineEntry& entry : ReadRecord(world.api.Get(RecordPath(FailoverWorld::IdOf("n1")))).timeline)
    if (entry.event == "Asked") asked = entry.text;
  CHECK(asked == "other controllers: 1 do not hear it, 1 gave no answer");
}

TEST_CASE("a NodeFence that others hold is over for the node, and delays its next failover for a minute") {
  FailoverWorld world;
  world.AddPod("db-0", "n1");
  Failover& failover = world.Start();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  const std::string record = RecordPath(FailoverWorld::IdOf("n1"));
  REQUIRE(Comes([&] { return TextAt(world.api.Get(record), {"status", "phase"}) == "AwaitingNode"; }));
  world.api.Merge(record, {{"metadata", {{"finalizers", {"others/audit", kFinalizer}}}}});
  world.PowerOn("n1");
  REQUIRE(Comes([&] { return ReadRecord(world.api.Get(record)).IsReleased(); }));
  CHECK(FieldAt(world.api.Get(record), {"metadata", "finalizers"}) == Json{"others/audit"});
  CHECK(Comes([&] { return world.TaintOf("n1").empty() && !world.IsFenced("n1"); }));
  const size_t writes = world.api.CountWrites(absl::StrCat("DELETE ", record));
  CHECK_FALSE(Comes([&] { return world.api.CountWrites(absl::StrCat("DELETE ", record)) > writes; },
                    absl::Seconds(1)));

  world.AddPod("db-1", "n1");
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return Says(failover, "node n1", "the API server does not store its NodeFence"); }));
  CHECK(world.Runs("db-1", "n1"));
  // The API server's clock says nothing: it may be another one.
  world.api.Merge(record, {{"metadata", {{"deletionTimestamp", "2001-01-01T00:00:00Z"}}}});
  CHECK_FALSE(Comes([&] { return world.Runs("db-1", "n2"); }, absl::Seconds(3)));
  CHECK(FieldAt(world.api.Get(record), {"metadata", "finalizers"}) == Json{"others/audit"});
  world.api.Remove(record);
  CHECK(Comes([&] { return world.Runs("db-1", "n2"); }));
  CHECK(FieldAt(world.api.Get(record), {"metadata", "finalizers"}) == Json{kFinalizer});
}

TEST_CASE("an array that is away when the leader starts belongs to a fence by hand until it is removed") {
  FailoverWorld world;
  const auto spare = std::make_shared<FakeArray>(FakeArrayOptions{.name = "spare"});
  ChangingArrays& arrays = AddArray(world, spare);
  spare->FailWith(absl::UnavailableError("its host is gone"));
  world.AddPod("db-0", "n1");
  world.Start();
  REQUIRE(Comes([&] { return world.IsLed(); }));
  const std::string record = RecordPath(FailoverWorld::IdOf("n1"));
  world.api.Put(record, {{"spec", {{"cause", "a test"}}}});
  const auto phase = [&] { return TextAt(world.api.Get(record), {"status", "phase"}); };
  const auto told = [&](const std::string& text) {
    for (const TimelineEntry& entry : ReadRecord(world.api.Get(record)).timeline)
      if (absl::StrContains(entry.text, text)) return true;
    return false;
  };
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));  // what the other array has confirmed goes on
  REQUIRE(Comes([&] { return told("waits for array spare, which is away"); }));
  CHECK_FALSE(Comes([&] { return phase() != ToWord(Phase::kFencing); }, absl::Seconds(2)));
  arrays.RemoveLast();
  CHECK(Comes([&] { return phase() == ToWord(Phase::kMoved); }));
}

TEST_CASE("an array that is configured no more is waited for no more") {
  FailoverWorld world;
  const auto spare = std::make_shared<FakeArray>(FakeArrayOptions{.name = "spare"});
  ChangingArrays& arrays = AddArray(world, spare);
  world.api.RunPodsOn("n3");
  world.AddPod("db-0", "n1");
  world.AddPod("db-1", "n2");
  Settings settings;
  settings.one_by_one_pause = 1_s;
  Failover& failover = world.Start("replica-1", settings);
  REQUIRE(Comes([&] { return world.IsLed(); }));
  spare->FailWith(absl::UnavailableError("its host is gone"));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return world.Runs("db-0", "n3"); }));  // within the budget of nodes
  world.PowerOff("n2");
  REQUIRE(Comes([&] { return Says(failover, "node n2", "an array does not answer"); }));
  CHECK(world.Runs("db-1", "n2"));
  arrays.RemoveLast();
  CHECK(Comes([&] { return world.Runs("db-1", "n3"); }));
}

}  // namespace lunkeeper::fencing
