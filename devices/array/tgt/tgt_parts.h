#pragma once
// What the views of all clusters share (TgtVolumes, TgtGroups, TgtGrants, TgtFences). TgtArray owns it all,
// and the parts live as long as it does. Each part is thread-safe.
//
// The two boundaries: the ImageStore alone touches volumes' bytes, and TgtServers with what it is
// made of alone speaks to tgtds. The views know neither a file descriptor nor a target's number.

#include <functional>

#include "absl/status/status.h"
#include "base/keyed_lock.h"
#include "base/random.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/heartbeat_lun_table.h"
#include "devices/array/tgt/image_store.h"
#include "devices/array/tgt/machine_shares.h"
#include "devices/array/tgt/pool_room.h"
#include "devices/array/tgt/seen_sequence.h"
#include "devices/array/tgt/tgt_array.h"
#include "devices/array/tgt/tgt_servers.h"
#include "devices/array/tgt/volume_copies.h"
#include "devices/array/tgt/volume_gates.h"
#include "devices/array/tgt/write_barrier.h"

namespace lunkeeper {

struct TgtParts {
  const TgtArrayOptions& options;
  // OK, or UNAVAILABLE: every call of a view answers so until the array serves.
  const std::function<absl::Status()> check_serving;
  // "volume <id or cluster/name>", likewise "snapshot" and "snapshot group": one call works on it at a time.
  KeyedLock& object_locks;
  ImageStore& images;
  PoolRoom& room;
  Catalogue& catalogue;
  SeenSequence& seen;
  VolumeGates& gates;
  MachineShares& shares;
  VolumeCopies& copies;
  TgtServers& servers;
  WriteBarrier& barrier;
  HeartbeatLunTable& heartbeat_luns;

  // For a new target of this node.
  GrantSecrets MakeSecrets(const ClusterId& cluster, const NodeId& node) const {
    return {.node = RandomSecret(), .target = MakeTargetSecret(catalogue.target_key(), cluster, node)};
  }
  // After a change, and before it is answered.
  void RememberSequence() const { seen.Remember(catalogue.sequence()); }
};

// ABORTED: another call is working on it.
absl::StatusOr<KeyedLock::Guard> LockObject(const TgtParts& parts, const std::string& name);
// What nodes may have been shown of this volume, and so may have written: more than its row says when a
// growth was cut short. Whatever copies the volume copies all of it.
absl::StatusOr<uint64_t> ReadShownSize(const TgtParts& parts, const Volume& volume);
// INVALID_ARGUMENT: a node id that could not be part of a target's name.
absl::Status CheckNodeId(const NodeId& node);

}  // namespace lunkeeper
