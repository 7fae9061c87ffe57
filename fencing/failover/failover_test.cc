// Failover as a whole: nodes that send heartbeats, an array and an API server in memory.

#include "fencing/failover/failover.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/periodic.h"
#include "devices/array/testing/fake_array.h"
#include "fencing/failover/facts.h"
#include "fencing/failover/record.h"
#include "fencing/failover/testing/fake_api.h"

namespace lunkeeper::fencing {
namespace {

using kube::FieldAt;
using kube::Json;
using kube::TextAt;

constexpr char kRecords[] = "/apis/lunkeeper.io/v1alpha1/nodefences";

std::string NodePath(const std::string& name) { return "/api/v1/nodes/" + name; }
std::string PodPath(const std::string& name) { return "/api/v1/namespaces/db/pods/" + name; }
std::string RecordPath(const NodeId& node) { return absl::StrCat(kRecords, "/", node.value()); }

// Five nodes; a database on the first.
class World {
 public:
  World() {
    for (const std::string name : {"n1", "n2", "n3", "n4", "n5"}) AddNode(name);
    api.RunPodsOn("n2");
  }
  ~World() {
    std::vector<std::unique_ptr<Failover>> gone;
    absl::MutexLock lock(&mutex);
    gone.swap(replicas);
  }

  void AddNode(const std::string& name) {
    const Json ready = {{{"type", "Ready"}, {"status", "True"}}};
    api.Put(NodePath(name), {{"status", {{"conditions", ready}}}});
    api.Put("/apis/storage.k8s.io/v1/csinodes/" + name,
            {{"spec", {{"drivers", {{{"name", "csi.lunkeeper.io"}, {"nodeID", IdOf(name).value()}}}}}}});
    absl::MutexLock lock(&mutex);
    heartbeating[name] = true;
  }
  static NodeId IdOf(const std::string& name) { return NodeId(name + ".00000000000000aa"); }

  // A StatefulSet's pod with volumes of ours, granted to its node. Returns the first.
  VolumeId AddPod(const std::string& name, const std::string& node, int count = 1) {
    std::vector<VolumeId> volumes;
    Json data = Json::array();
    for (int i = 0; i < count; ++i) {
      const std::string claim = absl::StrCat("data", i, "-", name);
      VolumeSpec spec;
      spec.name = claim;
      spec.size_bytes = 1 << 20;
      volumes.push_back(array->CreateVolume(spec)->id);
      REQUIRE(array->AcquireGrant({volumes.back(), IdOf(node)}, absl::ZeroDuration()).ok());
      api.Put("/api/v1/persistentvolumes/pv-" + claim,
              {{"spec",
                {{"csi", {{"driver", "csi.lunkeeper.io"}, {"volumeHandle", volumes.back().value()}}},
                 {"claimRef", {{"namespace", "db"}, {"name", claim}}}}},
               {"status", {{"phase", "Bound"}}}});
      data.push_back({{"name", claim}, {"persistentVolumeClaim", {{"claimName", claim}}}});
    }
    const Json owner = {{{"kind", "StatefulSet"}, {"controller", true}}};
    const Json ready = {{{"type", "Ready"}, {"status", "True"}}};
    api.Put(PodPath(name), {{"metadata", {{"ownerReferences", owner}}},
                            {"spec", {{"nodeName", node}, {"volumes", data}}},
                            {"status", {{"phase", "Running"}, {"conditions", ready}}}});
    return volumes.front();
  }

  Failover& Start(const std::string& name = "replica-1", Settings settings = {}) {
    settings.tick = 50_ms;
    settings.slow_silence = 2500_ms;  // there is nobody to probe
    settings.kubelet_stale = 600_s;   // and no kubelet that renews a lease
    clients.push_back(api.Client());
    const FailoverOptions options{settings, name, {"kube-system", "lunkeeper-failover"}};
    absl::MutexLock lock(&mutex);
    return *replicas.emplace_back(StartFailover(options, *arrays, *clients.back()));
  }
  void StopReplica(size_t index) {
    std::unique_ptr<Failover> gone;
    absl::MutexLock lock(&mutex);
    gone.swap(replicas[index]);
  }

  // From now on its heartbeats land on the array, or do so no more.
  void HeartbeatOnArray(const std::string& name, bool lands) {
    absl::MutexLock lock(&mutex);
    landing[name] = lands;
  }

  // Half a second's heartbeats of all nodes, to all replicas.
  void Heartbeat() {
    absl::MutexLock lock(&mutex);
    ++sequence;
    for (const auto& [name, lands] : landing)
      if (lands) array->LandHeartbeat(IdOf(name));
    for (const auto& [name, alive] : heartbeating) {
      if (!alive) continue;
      fencing::Heartbeat heartbeat;
      heartbeat.node = IdOf(name);
      heartbeat.boot = "boot";
      heartbeat.sequence = sequence;
      heartbeat.known = known[name];
      for (auto& replica : replicas) {
        if (replica == nullptr) continue;
        for (const auto& [array_id, fence] : replica->OnHeartbeat(heartbeat))
          known[name][array_id] = fence.generation;
      }
    }
  }
  // The machine is gone, and its kubelet's lease with it.
  void PowerOff(const std::string& name) {
    {
      absl::MutexLock lock(&mutex);
      heartbeating[name] = false;
    }
    api.Merge(NodePath(name), {{"status", {{"conditions", {{{"type", "Ready"}, {"status", "Unknown"}}}}}}});
  }
  void PowerOn(const std::string& name) {
    absl::MutexLock lock(&mutex);
    heartbeating[name] = true;
    api.Merge(NodePath(name), {{"status", {{"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}});
  }

  bool Runs(const std::string& pod, const std::string& node) {
    return TextAt(api.Get(PodPath(pod)), {"spec", "nodeName"}) == node;
  }
  bool IsFenced(const std::string& node) {
    const auto fences = array->ListFences();
    return fences.ok() && std::any_of(fences->begin(), fences->end(),
                                      [&](const FenceRecord& fence) { return fence.node == IdOf(node); });
  }
  bool Holds(const std::string& node, const VolumeId& volume) {
    const auto grants = array->ListGrants({volume, IdOf(node)});
    return !grants.ok() || !grants->empty();
  }
  std::string TaintOf(const std::string& node) {
    const Json& taints = api.Get(NodePath(node));
    return TaintIn(kube::ToText(FieldAt(taints, {"spec", "taints"})));
  }

  std::shared_ptr<FakeArray> array = std::make_shared<FakeArray>();
  std::unique_ptr<lunkeeper::Arrays> arrays = MakeOneArray("fake", array);
  std::function<void(const std::string&)> on_write = [](const std::string&) {};
  FakeApi api{[this](const std::string& write) { on_write(write); }};
  std::vector<std::unique_ptr<kube::KubeClient>> clients;
  absl::Mutex mutex;
  std::vector<std::unique_ptr<Failover>> replicas;
  std::map<std::string, bool> heartbeating, landing;
  std::map<std::string, std::map<ArrayId, Generation>> known;
  uint64_t sequence = 0;
  Periodic heartbeats{absl::Milliseconds(200), [this] { Heartbeat(); }};
};

// Arrays of which one may be taken out of the configuration.
class ChangingArrays final : public lunkeeper::Arrays {
 public:
  explicit ChangingArrays(std::vector<NamedArray> arrays) : arrays_(std::move(arrays)) {}
  std::vector<NamedArray> ListArrays() override {
    absl::MutexLock lock(&mutex_);
    return arrays_;
  }
  void RemoveLast() {
    absl::MutexLock lock(&mutex_);
    arrays_.pop_back();
  }

 private:
  absl::Mutex mutex_;
  std::vector<NamedArray> arrays_ ABSL_GUARDED_BY(mutex_);
};

bool Says(Failover& failover, const std::string& about, const std::string& what) {
  const auto lines = failover.Status();
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
    return absl::StartsWith(line, about) && absl::StrContains(line, what);
  });
}

bool Comes(const std::function<bool()>& condition) {
  const absl::Time end = absl::Now() + absl::Seconds(40);
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

}  // namespace

TEST_CASE(
    "a node that loses power: recorded, fenced, tainted, its pod moved, in this order; and all taken back") {
  VolumeId volume;
  std::atomic<int> wrong = 0;
  Metrics metrics("controller");
  World world;  // last: its threads use the others until it is gone
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
  REQUIRE(Comes([&] { return world.api.CountWrites("PATCH /apis/coordination.k8s.io") > 2; }));
  CHECK(Comes(
      [&] { return shows("lunkeeper_failover_evidence_nodes{channel=\"network\",state=\"arrives\"} 5\n"); }));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  CHECK(wrong == 0);
  CHECK(world.TaintOf("n1") == "00000000000000aa");
  REQUIRE(Comes([&] {
    const auto phase = TextAt(world.api.Get(RecordPath(World::IdOf("n1"))), {"status", "phase"});
    return phase == "Moved" || phase == "AwaitingNode";
  }));
  const Json record = world.api.Get(RecordPath(World::IdOf("n1")));
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
  REQUIRE(Comes([&] { return world.api.Get(RecordPath(World::IdOf("n1"))).is_null(); }));
  REQUIRE(Comes([&] { return world.TaintOf("n1").empty(); }));
  CHECK_FALSE(world.IsFenced("n1"));
  CHECK(world.Runs("db-0", "n2"));
  CHECK(Comes([&] { return shows("lunkeeper_failover_nodefences{phase=\"AwaitingNode\"} 0\n"); }));
}

TEST_CASE("of two replicas one acts; when it goes, the other carries on") {
  World world;
  world.AddPod("db-0", "n1");
  world.array->HoldDrains(true);
  world.Start("replica-1");
  world.Start("replica-2");
  const auto leader = [&] {
    return TextAt(
        world.api.Get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/lunkeeper-failover"),
        {"spec", "holderIdentity"});
  };
  REQUIRE(Comes([&] { return !leader().empty(); }));
  const std::string first = leader();
  REQUIRE(Comes([&] { return world.api.CountWrites("PATCH /apis/coordination.k8s.io") > 2; }));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return world.IsFenced("n1"); }));  // begun, and not over
  world.StopReplica(first == "replica-1" ? 0 : 1);
  REQUIRE(Comes([&] { return !leader().empty() && leader() != first; }));
  CHECK(world.Runs("db-0", "n1"));
  world.array->HoldDrains(false);
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  CHECK(world.api.CountWrites("DELETE " + PodPath("db-0")) == 1);
  CHECK(world.api.CountWrites(absl::StrCat("POST ", kRecords)) == 1);
}

TEST_CASE("a NodeFence made by hand fences a healthy node, and its deletion gives it back") {
  World world;
  const VolumeId volume = world.AddPod("db-0", "n1");
  world.Start();
  REQUIRE(Comes([&] { return world.api.CountWrites("PATCH /apis/coordination.k8s.io") > 2; }));
  world.api.Put(RecordPath(World::IdOf("n1")), {{"spec", {{"cause", "a test"}}}});
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  CHECK_FALSE(world.Holds("n1", volume));
  REQUIRE(Comes([&] {
    return !FieldAt(world.api.Get(RecordPath(World::IdOf("n1"))), {"metadata", "finalizers"}).empty();
  }));
  world.api.Merge(RecordPath(World::IdOf("n1")),
                  {{"metadata", {{"deletionTimestamp", "2026-11-21T00:00:00Z"}}}});
  REQUIRE(Comes(
      [&] { return world.api.Get(RecordPath(World::IdOf("n1"))).is_null() && world.TaintOf("n1").empty(); }));
  CHECK_FALSE(world.IsFenced("n1"));
}

TEST_CASE("conflicts and errors of the API server delay a failover and change nothing of it") {
  World world;
  world.AddPod("db-0", "n1");
  world.Start();
  REQUIRE(Comes([&] { return world.api.CountWrites("PATCH /apis/coordination.k8s.io") > 2; }));
  world.api.Refuse(absl::StrCat("POST ", kRecords), 2);
  world.api.Refuse("PATCH /api/v1/nodes/n1", 2);
  world.api.Refuse("DELETE " + PodPath("db-0"), 2);
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  CHECK(world.api.CountWrites("DELETE " + PodPath("db-0")) == 1);
}

TEST_CASE("without the CustomResourceDefinition nothing is done, and a node that dies is left alone") {
  Metrics metrics("controller");
  World world;
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

TEST_CASE("a volume of a pod without an owner stays with its dead node until another node asks for it") {
  World world;
  const VolumeId volume = world.AddPod("lone", "n1");
  world.api.Merge(PodPath("lone"), {{"metadata", {{"ownerReferences", nullptr}}}});
  Failover& failover = world.Start();
  REQUIRE(Comes([&] { return world.api.CountWrites("PATCH /apis/coordination.k8s.io") > 2; }));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return Says(failover, "node n1", "hung or dead"); }));
  CHECK_FALSE(world.IsFenced("n1"));
  CHECK(world.array->AcquireGrant({volume, World::IdOf("n2")}, absl::Seconds(30)).ok());
  CHECK(world.IsFenced("n1"));
  CHECK(world.api.CountWrites("DELETE " + PodPath("lone")) == 0);
}

TEST_CASE("a pod that is left alone on a fenced node is told so, once") {
  constexpr char kEvents[] = "POST /apis/events.k8s.io/v1/namespaces/db/";
  World world;
  world.AddPod("db-0", "n1");
  world.AddPod("lone", "n1");
  world.api.Merge(PodPath("lone"), {{"metadata", {{"ownerReferences", nullptr}}}});
  world.Start();
  REQUIRE(Comes([&] { return world.api.CountWrites("PATCH /apis/coordination.k8s.io") > 2; }));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return world.Runs("db-0", "n2"); }));
  CHECK(Comes([&] { return world.api.CountWrites(kEvents) == 2; }));  // one of them to the pod that moved
  CHECK(world.api.CountWrites("DELETE " + PodPath("lone")) == 0);
}

TEST_CASE("a node that only the array hears is held, and fenced when the array hears it no more") {
  World world;
  const VolumeId volume = world.AddPod("db-0", "n1");
  world.HeartbeatOnArray("n1", true);
  Failover& failover = world.Start();
  const auto says = [&](const std::string& text) {
    for (const std::string& line : failover.Status())
      if (absl::StartsWith(line, "node n1") && absl::StrContains(line, text)) return true;
    return false;
  };
  REQUIRE(Comes([&] { return world.api.CountWrites("PATCH /apis/coordination.k8s.io") > 2; }));
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

TEST_CASE("dry run and pause say what they hold back, and nothing is done") {
  World world;
  world.AddPod("db-0", "n1");
  Settings settings;
  const bool dry = GENERATE(true, false);
  (dry ? settings.dry_run : settings.paused) = true;
  Failover& failover = world.Start("replica-1", settings);
  REQUIRE(Comes([&] { return world.api.CountWrites("PATCH /apis/coordination.k8s.io") > 2; }));
  world.PowerOff("n1");
  const std::string said = dry ? "dry run: would be failed over" : "not failed over: failover is paused";
  CHECK(Comes([&] { return Says(failover, "node n1", said); }));
  CHECK_FALSE(world.IsFenced("n1"));
  CHECK(world.api.CountWrites(absl::StrCat("POST ", kRecords)) == 0);
  CHECK(world.api.CountWrites("DELETE ") == 0);
}

TEST_CASE("an array that is configured no more is waited for no more") {
  World world;
  const auto spare = std::make_shared<FakeArray>(FakeArrayOptions{.name = "spare"});
  auto changing = std::make_unique<ChangingArrays>(
      std::vector<NamedArray>{{"fake", world.array, true}, {"spare", spare, false}});
  ChangingArrays& arrays = *changing;
  world.arrays = std::move(changing);
  world.api.RunPodsOn("n3");
  world.AddPod("db-0", "n1");
  world.AddPod("db-1", "n2");
  Settings settings;
  settings.one_by_one_pause = 1_s;
  Failover& failover = world.Start("replica-1", settings);
  REQUIRE(Comes([&] { return world.api.CountWrites("PATCH /apis/coordination.k8s.io") > 2; }));
  spare->FailWith(absl::UnavailableError("its host is gone"));
  world.PowerOff("n1");
  REQUIRE(Comes([&] { return world.Runs("db-0", "n3"); }));  // within the budget of nodes
  world.PowerOff("n2");
  REQUIRE(Comes([&] { return Says(failover, "node n2", "an array does not answer"); }));
  CHECK(world.Runs("db-1", "n2"));
  arrays.RemoveLast();
  CHECK(Comes([&] { return world.Runs("db-1", "n3"); }));
}

TEST_CASE("a hundred pods with two hundred volumes leave a dead node together") {
  absl::Mutex mutex;
  absl::Time decided, last;
  int calls = 0;            // by failover, from the decision on; not to renew its lease
  int told = 0, early = 0;  // events of pods; of them before the last deletion
  World world;              // after them, as above
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
  REQUIRE(Comes([&] { return world.api.CountWrites("PATCH /apis/coordination.k8s.io") > 2; }));
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

}  // namespace lunkeeper::fencing
