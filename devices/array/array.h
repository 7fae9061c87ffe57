#pragma once
// The seam towards storage. The array is the authority: what keeps data safe is decided behind these
// interfaces, in one durable place. So no mistake above them (a stale leader, a restored etcd, a retrying
// orchestrator) can give a volume to two writers.
//
// An Array is one cluster's view of one array: it neither shows nor touches what belongs to another cluster.
// It consists of six parts, and callers take the part they need:
//   VolumeStore      volumes, snapshots, capacity      (volume_store.h)
//   SnapshotGroups   snapshots of several volumes      (snapshot_groups.h)
//   SnapshotBlocks   which blocks a backup copies      (snapshot_blocks.h)
//   GrantStore       which node may use which volume   (grant_store.h)
//   FenceControl     terms, fences, heartbeat LUNs     (fence_control.h)
//   NameIndex        which object has a name           (name_index.h)
// Several arrays together are one of each but the last two (array_router.h): each array counts its own terms
// and generations, and a name is looked for in all of them (name_search.h).
//
// Thread safety: every call may be made from any thread, at the same time as any other.
// Durability: what a call has returned survives a crash of the caller, of the array's program and of its
// machine. A call cut short is finished or undone before the array serves again; every call may be repeated
// and then succeeds.
//
// Failure: absl codes, meaning the same in every call unless its comment says more:
//   NOT_FOUND            no such volume, snapshot or node for this cluster
//   RESOURCE_EXHAUSTED   the pool is full
//   ABORTED              another call is working on the same object: try again
//   UNAVAILABLE          the array cannot be reached or is not serving yet: try again
//   FAILED_PRECONDITION  the state forbids it; the message says which state and what to do

#include "devices/array/fence_control.h"
#include "devices/array/grant_store.h"
#include "devices/array/name_index.h"
#include "devices/array/snapshot_blocks.h"
#include "devices/array/snapshot_groups.h"
#include "devices/array/volume_store.h"

namespace lunkeeper {

class Array {
 public:
  virtual ~Array() = default;

  // Each lives as long as the Array.
  virtual VolumeStore& volumes() = 0;
  virtual SnapshotGroups& groups() = 0;
  virtual SnapshotBlocks& blocks() = 0;
  virtual GrantStore& grants() = 0;
  virtual FenceControl& fences() = 0;
  virtual NameIndex& names() = 0;
};

}  // namespace lunkeeper
