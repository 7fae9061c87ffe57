#pragma once
// A VolumeLock as an object in Kubernetes, which shows people the nodes that hold a volume. Its name is the
// volume's id, and it has a status and nothing else. Pure functions.

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "devices/array/grant_store.h"
#include "fencing/core/types.h"
#include "fencing/kube/kube_client.h"
#include "fencing/protocol/device_detail.h"

namespace lunkeeper::fencing {

inline const kube::Resource kVolumeLocks{"lunkeeper.io", "v1alpha1", "volumelocks"};

struct LockHolder {
  NodeId node;
  Access access = Access::kExclusive;
  Generation generation = 0;
  absl::Time since;
  std::vector<std::string> pods;  // on that node, "namespace/name"
  DeviceDetail detail;            // as the node says; without a device: it has said nothing
};

struct VolumeLock {
  std::string persistent_volume, claim;  // empty: there is no bound one
  bool block = false;                    // pods see a device, not a file system
  std::vector<LockHolder> holders;       // at least one
};

kube::Json StatusOf(const VolumeLock& lock);
// A hash of everything in StatusOf but the times, without building it: far quicker. Valid within one process.
size_t HashOf(const VolumeLock& lock);

// What is kept of an existing object: enough to tell whether it is correct, and since when each grant is
// known.
struct LockFacts {
  Version version;
  size_t digest = 0;  // of its status
  std::vector<std::pair<Generation, absl::Time>> since;
  friend bool operator==(const LockFacts&, const LockFacts&) = default;
};

LockFacts ReadLock(const kube::Json& object);
size_t DigestOf(const kube::Json& status);

}  // namespace lunkeeper::fencing
