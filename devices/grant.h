#pragma once
// A grant and the words that describe it: who may use which volume, how, and by which connection. The array
// makes grants (devices/array/grant_store.h); messages carry them to the node. Plain values; nothing fails.

#include <cstdint>
#include <string>

#include "devices/types.h"
#include "devices/volume_limits.h"

namespace lunkeeper {

// What a grant allows. An exclusive grant excludes every other; CanJoin says which others go together.
enum class Access { kExclusive, kReadOnly, kSharedWrite };

// How a node uses a volume: Kubernetes' volumeMode. kAny: the caller does not say.
enum class VolumeMode { kAny, kFilesystem, kBlock };

// kSync makes every acknowledged write durable; kCached has a write cache, which flushes empty.
enum class Durability { kCached, kSync };  // the more durable, the greater

// Who took a grant: a node for itself (NodeStage), or the orchestrator for it (ControllerPublish). Only the
// same side releases it, so that an unstage does not release what was published.
enum class GrantOwner { kNode, kOrchestrator };

struct Grant {
  VolumeId volume;
  NodeId node;
  Access access = Access::kExclusive;
  GrantOwner owner = GrantOwner::kNode;
  Generation generation = 0;
  Connection connection;
  std::string serial;
  uint64_t size_bytes = 0;
  Durability durability = Durability::kCached;
  std::string node_uid = {};  // as requested
  VolumeLimits limits = {};
};

}  // namespace lunkeeper
