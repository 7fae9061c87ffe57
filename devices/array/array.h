#pragma once
// The seam towards storage. The array is the authority: what keeps data safe is decided behind this
// interface, in one durable place, so that no mistake above it (a stale leader, a restored etcd, a retrying
// orchestrator) can give a volume to two writers.
//
// An Array is one cluster's view of one array: it neither shows nor touches what belongs to another cluster.
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

#include "devices/array/access_control.h"
#include "devices/array/heartbeat_luns.h"
#include "devices/array/volume_store.h"

namespace lunkeeper {

class Array : public VolumeStore, public AccessControl, public HeartbeatLuns {};

}  // namespace lunkeeper
