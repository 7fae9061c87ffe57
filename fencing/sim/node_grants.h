#pragma once
// The grants of a machine, as its plugin gets and releases them: the product's table of replicas and its
// source of grants (fencing/agent), with the simulated network below them. What kubelet and the plugin do
// with a grant is made up. Driven by its machine, which outlives it, as the process does. One thread.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/periodic.h"
#include "fencing/agent/coordinator_grant_source.h"
#include "fencing/agent/replica_table.h"
#include "fencing/sim/data_path.h"
#include "fencing/sim/process.h"
#include "fencing/sim/replica_link.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

class NodeGrants {
 public:
  NodeGrants(const Machine& machine, DataPath& data_path, Process& process);

  // Asks for the grant, unless that is under way, and attaches the device.
  void Ask(const ArrayId& array, const VolumeId& volume);
  // Of a volume that no pod here uses. Whatever it gets is released.
  void AskAsStranger(const VolumeId& volume);
  // It is to be released, and is not yet.
  bool Releases(const VolumeId& volume) const { return releases_.contains(volume); }
  void NoteUnused(const Device& device) { releases_[device.volume] = {device.generation}; }
  void SendReleases();
  // A grant of ours which nothing here uses, left over by a reboot or an answer that was lost, is released.
  void LookForLost();
  // To be called with each heartbeat.
  void NoteOpenWays();
  // Other replicas, as an answer names them.
  void AddNamed(const std::vector<std::string>& addresses);
  ReplicaTable& table() { return table_; }
  std::vector<Replica*> ListReplicas();
  // Ends its threads.
  void Stop();

 private:
  std::shared_ptr<const ReplicaConnection> ConnectTo(const std::string& address) const;
  void ResolveNames();
  void ReleaseLost(const std::vector<HeldGrant>& held);

  // A grant that is no longer needed, until a replica says that it is released.
  struct ToRelease {
    Generation generation = 0;
    bool asked = false;
  };

  const Machine& machine_;
  DataPath& data_path_;
  Process& process_;
  World& world_;
  ReplicaTable table_;
  const std::unique_ptr<GrantSource> source_;
  const std::unique_ptr<Workers> callers_;
  std::set<VolumeId> asked_;
  std::map<VolumeId, ToRelease> releases_;
  std::unique_ptr<Periodic> names_;  // last: its thread uses the others
};

}  // namespace lunkeeper::fencing::sim
