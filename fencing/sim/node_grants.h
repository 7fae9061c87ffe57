#pragma once
// How a machine gets the grants of its volumes from the controllers, and releases the ones that it no longer
// needs. Driven by its machine, which outlives it; what comes back for a former life of the machine is
// dropped. One thread.

#include <map>
#include <optional>
#include <vector>

#include "fencing/sim/data_path.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

class NodeGrants {
 public:
  NodeGrants(World& world, const Machine& machine, DataPath& data_path)
      : world_(world), machine_(machine), data_path_(data_path) {}

  // Asks for the grant, unless that is under way, and attaches the device.
  void Ask(const ArrayId& array, const VolumeId& volume);
  // It is to be released, and is not yet.
  bool Releases(const VolumeId& volume) const { return releases_.contains(volume); }
  void NoteUnused(const Device& device) { releases_[device.volume] = {device.array, device.generation}; }
  void SendReleases();
  // A grant of ours which nothing here uses, left over by a reboot or an answer that was lost, is released.
  void LookForLost();
  // Those whose connection works come first, of them the ones whose last call failed lately last.
  std::vector<Replica*> ListReplicas() const;
  void NoteOutcome(const Replica& replica, bool answered);
  // To be called with each heartbeat.
  void NoteOpenWays();
  // The machine boots.
  void ForgetAll() { asked_.clear(), releases_.clear(); }

 private:
  // Its connection works, as far as the node knows.
  bool IsReady(const Replica& replica) const;
  Replica& PickReplica(const VolumeId& volume);
  void NoticeIfDead(const Replica& replica, const VolumeId& volume, std::optional<WorldTime> asked);

  World& world_;
  const Machine& machine_;
  DataPath& data_path_;
  std::map<VolumeId, std::optional<WorldTime>> asked_;  // empty: answered
  std::map<VolumeId, size_t> attempts_;                 // to ask for it
  std::map<Endpoint, WorldTime> open_at_;               // the way to a replica and back, last
  std::map<Endpoint, WorldTime> failed_at_;             // the last call to a replica
  // Grants that are no longer needed, until a replica says that they are released.
  struct ToRelease {
    ArrayId array;
    Generation generation = 0;
  };
  std::map<VolumeId, ToRelease> releases_;
};

}  // namespace lunkeeper::fencing::sim
