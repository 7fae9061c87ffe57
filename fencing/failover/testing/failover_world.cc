#include "fencing/failover/testing/failover_world.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/testing/test_host.h"
#include "fencing/failover/facts.h"

namespace lunkeeper::fencing {
namespace {

constexpr char kLeasePath[] = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/lunkeeper-failover";

}  // namespace

FailoverWorld::FailoverWorld() {
  for (const std::string name : {"n1", "n2", "n3", "n4", "n5"}) AddNode(name);
  api.RunPodsOn("n2");
}

FailoverWorld::~FailoverWorld() {
  std::vector<std::unique_ptr<Failover>> gone;
  absl::MutexLock lock(&mutex);
  gone.swap(replicas);
}

void FailoverWorld::AddNode(const std::string& name) {
  const Json ready = {{{"type", "Ready"}, {"status", "True"}}};
  api.Put(NodePath(name), {{"status", {{"conditions", ready}}}});
  api.Put("/apis/storage.k8s.io/v1/csinodes/" + name,
          {{"spec", {{"drivers", {{{"name", "csi.lunkeeper.io"}, {"nodeID", IdOf(name).value()}}}}}}});
  absl::MutexLock lock(&mutex);
  heartbeating[name] = true;
}

VolumeId FailoverWorld::AddPod(const std::string& name, const std::string& node, int count) {
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
  const Json owner = {{{"apiVersion", "apps/v1"}, {"kind", "StatefulSet"}, {"controller", true}}};
  const Json ready = {{{"type", "Ready"}, {"status", "True"}}};
  api.Put(PodPath(name), {{"metadata", {{"ownerReferences", owner}}},
                          {"spec", {{"nodeName", node}, {"volumes", data}}},
                          {"status", {{"phase", "Running"}, {"conditions", ready}}}});
  return volumes.front();
}

Settings FailoverWorld::Adapt(Settings settings) {
  settings.tick = 50_ms;
  settings.slow_silence = 2500_ms;  // there is nobody to probe
  settings.kubelet_stale = 600_s;   // and no kubelet that renews a lease
  return settings;
}

Failover& FailoverWorld::Start(const std::string& name, Settings settings) {
  clients.push_back(api.Client());
  FailoverOptions options{Adapt(std::move(settings)), name, {"kube-system", "lunkeeper-failover"}};
  options.distrust = [this](const std::string& machine) {
    absl::MutexLock lock(&distrusted_mutex);
    distrusted.push_back(machine);
  };
  options.ask_replicas = ask_replicas;
  options.removed_arrays = removed_arrays;
  absl::MutexLock lock(&mutex);
  return *replicas.emplace_back(StartFailover(options, *arrays, *clients.back()));
}

void FailoverWorld::Heartbeat() {
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
    heartbeat.present = devices[name];
    heartbeat.known = known[name];
    for (size_t i = 0; i < replicas.size(); ++i) {
      if (replicas[i] == nullptr || cut.contains({i, name})) continue;
      for (const auto& [array_id, fence] : replicas[i]->OnHeartbeat(heartbeat))
        known[name][array_id] = fence.generation;
    }
  }
}

void FailoverWorld::LetReplicasAsk() {
  ask_replicas = [this](const NodeId&, const auto& answered) {
    ReplicaVotes votes;
    {
      absl::MutexLock lock(&mutex);
      for (auto& replica : replicas)
        if (const auto sight = replica ? replica->Sight() : std::nullopt) votes.sights.push_back(*sight);
    }
    answered(votes);
  };
}

void FailoverWorld::PowerOff(const std::string& name) {
  {
    absl::MutexLock lock(&mutex);
    heartbeating[name] = false;
  }
  api.Merge(NodePath(name), {{"status", {{"conditions", {{{"type", "Ready"}, {"status", "Unknown"}}}}}}});
}

void FailoverWorld::PowerOn(const std::string& name) {
  absl::MutexLock lock(&mutex);
  heartbeating[name] = true;
  api.Merge(NodePath(name), {{"status", {{"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}});
}

bool FailoverWorld::IsFenced(const std::string& node) {
  const auto fences = array->ListFences();
  return fences.ok() && std::any_of(fences->begin(), fences->end(),
                                    [&](const FenceRecord& fence) { return fence.node == IdOf(node); });
}

std::string FailoverWorld::TaintOf(const std::string& node) {
  const Json& taints = api.Get(NodePath(node));
  return TaintIn(kube::ToText(FieldAt(taints, {"spec", "taints"})));
}

std::string FailoverWorld::LeaseHolder() const {
  return TextAt(api.Get(kLeasePath), {"spec", "holderIdentity"});
}

bool FailoverWorld::IsOnLease(const std::string& text) const {
  const std::string uid = TextAt(api.Get(kLeasePath), {"metadata", "uid"});
  const auto writes = api.writes();
  return !uid.empty() && std::any_of(writes.begin(), writes.end(), [&](absl::string_view write) {
    if (!absl::ConsumePrefix(&write, "POST ") || !absl::StartsWith(write, "/apis/events.k8s.io"))
      return false;
    const auto event = api.Get(std::string(write));
    return TextAt(event, {"regarding", "uid"}) == uid && absl::StrContains(TextAt(event, {"note"}), text);
  });
}

ChangingArrays& AddArray(FailoverWorld& world, std::shared_ptr<FakeArray> spare) {
  auto changing = std::make_unique<ChangingArrays>(
      std::vector<NamedArray>{{"fake", world.array, true}, {"spare", std::move(spare), false}});
  ChangingArrays& arrays = *changing;
  world.arrays = std::move(changing);
  return arrays;
}

bool Says(Failover& failover, const std::string& about, const std::string& what) {
  const auto lines = failover.ReportStatus();
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
    return absl::StartsWith(line, about) && absl::StrContains(line, what);
  });
}

bool Comes(const std::function<bool()>& condition, absl::Duration limit) {
  return testing::Eventually(condition, limit);
}

}  // namespace lunkeeper::fencing
