// A name server knows the replicas that Kubernetes has, and is asked every five seconds; a replica that has
// come since is known when another one names it.

#include "fencing/sim/node_grants.h"

#include <utility>

#include "fencing/sim/checker.h"
#include "fencing/sim/machine.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr absl::Duration kResolveEvery = absl::Seconds(5);  // fencing/agent/replicas.cc
// As kubelet waits for NodeStageVolume, and the plugin for the others.
constexpr absl::Duration kWait = absl::Seconds(30), kReleaseTime = absl::Seconds(8),
                         kListTime = absl::Seconds(2);
constexpr size_t kCallers = 64;
constexpr char kService[] = "lunkeeper-controller";

}  // namespace

NodeGrants::NodeGrants(const Machine& machine, DataPath& data_path, Process& process)
    : machine_(machine),
      data_path_(data_path),
      process_(process),
      world_(process.world()),
      table_([this](const std::string& address, const std::string&) { return ConnectTo(address); }, kService,
             process),
      source_(MakeCoordinatorGrantSource(table_, machine.id(), process)),
      callers_(process.MakeWorkers(kCallers)),
      names_(std::make_unique<Periodic>(
          kResolveEvery, [this] { ResolveNames(); }, process)) {}

void NodeGrants::Stop() {
  names_.reset();
  callers_->Stop();
}

void NodeGrants::ResolveNames() {
  std::map<std::string, std::string> found;
  for (const auto& replica : world_.replicas)
    if (!replica->deleted()) found.emplace(replica->address(), kService);
  table_.NoteResolved(found, /*complete=*/true);
}

std::shared_ptr<const ReplicaConnection> NodeGrants::ConnectTo(const std::string& address) const {
  for (const auto& replica : world_.replicas)
    if (replica->address() == address) return std::make_shared<ReplicaLink>(machine_, process_, *replica);
  throw std::logic_error("no replica is at " + address);
}

void NodeGrants::AddNamed(const std::vector<std::string>& addresses) {
  for (const auto& address : addresses)
    for (const auto& replica : world_.replicas)  // one that is over is at no address any more
      if (replica->address() == address) table_.NoteNamed(address, kService);
}

std::vector<Replica*> NodeGrants::ListReplicas() {
  std::vector<Replica*> replicas;
  for (const auto& each : table_.ListReplicas())
    replicas.push_back(&static_cast<const ReplicaLink&>(*each).to());
  return replicas;
}

void NodeGrants::NoteOpenWays() {
  for (const auto& each : table_.ListReplicas()) static_cast<const ReplicaLink&>(*each).NoteIfOpen();
}

// NodeStage: a controller replica asks the array, and blocks.
void NodeGrants::Ask(const ArrayId& array, const VolumeId& volume) {
  if (process_.dead() || !asked_.insert(volume).second) return;
  callers_->Post([this, array, volume] {
    const auto grant = source_->Acquire(volume, {}, kWait);
    if (process_.dead()) return;
    asked_.erase(volume);
    if (grant.ok()) data_path_.Attach(array, volume, grant->generation);
  });
}

void NodeGrants::AskAsStranger(const VolumeId& volume) {
  if (process_.dead()) return;
  callers_->Post([this, volume] { source_->Acquire(volume, {}, kWait).IgnoreError(); });
}

void NodeGrants::LookForLost() {
  if (process_.dead()) return;
  callers_->Post([this] {
    const auto held = source_->Held({}, process_.WallNow() + kListTime);
    if (held.ok() && !process_.dead()) ReleaseLost(*held);
  });
}

void NodeGrants::ReleaseLost(const std::vector<HeldGrant>& held) {
  for (const auto& grant : held)
    if (!data_path_.FindDevice(grant.volume) && !asked_.contains(grant.volume) && !Releases(grant.volume))
      releases_[grant.volume] = {grant.generation};
}

void NodeGrants::SendReleases() {
  if (process_.dead()) return;
  for (auto& [volume, release] : releases_) {
    if (std::exchange(release.asked, true)) continue;
    world_.checker->Released(ArrayId(ArrayNameIn(volume.value())), release.generation);
    callers_->Post([this, volume = volume, generation = release.generation] {
      const auto status = source_->Release(volume, generation, process_.WallNow() + kReleaseTime);
      const auto found = releases_.find(volume);
      if (process_.dead() || found == releases_.end() || found->second.generation != generation) return;
      status.ok() ? (void)releases_.erase(found) : (void)(found->second.asked = false);
    });
  }
}

}  // namespace lunkeeper::fencing::sim
