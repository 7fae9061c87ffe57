#pragma once
// A VolumeLock as an object in Kubernetes: who has a volume, for people to read. It is called after the
// volume, and has a status and nothing else. Pure functions.

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "devices/array/grant_store.h"
#include "fencing/core/types.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::fencing {

inline const kube::Resource kVolumeLocks{"lunkeeper.io", "v1alpha1", "volumelocks"};

struct LockHolder {
  NodeId node;
  Access access = Access::kExclusive;
  Generation generation = 0;
  absl::Time since;
  std::vector<std::string> pods;  // on that node, "namespace/name"
};

struct VolumeLock {
  std::string persistent_volume, claim;  // empty: none that is bound
  bool block = false;                    // pods see a device, not a file system
  std::vector<LockHolder> holders;       // at least one
};

kube::Json StatusOf(const VolumeLock& lock);
// Of what StatusOf shows, but for the times: far quicker than to show it. Good within one process.
size_t HashOf(const VolumeLock& lock);

// What is kept of one that is there: enough to tell whether it is right, and since when each grant is known.
struct LockFacts {
  Version version;
  size_t digest = 0;  // of its status
  std::vector<std::pair<Generation, absl::Time>> since;
  friend bool operator==(const LockFacts&, const LockFacts&) = default;
};

LockFacts ReadLock(const kube::Json& object);
size_t DigestOf(const kube::Json& status);

}  // namespace lunkeeper::fencing
