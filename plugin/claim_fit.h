#pragma once
// Whether a claim that is there would be bound to a PersistentVolume that is reserved for it. Where it does
// not fit, Kubernetes says nothing: it has a new, empty volume made for the claim, or leaves the pod waiting.
// Pure functions, thread-safe.

#include <string>

#include "absl/status/status.h"
#include "fencing/kube/json.h"

namespace lunkeeper {

inline constexpr char kBlockMode[] = "Block", kFilesystemMode[] = "Filesystem";
inline constexpr char kReadWriteOncePod[] = "ReadWriteOncePod";

// A claim that does not say has a file system.
std::string VolumeModeOf(const kube::Json& claim);
// FAILED_PRECONDITION, and why: it does not fit.
absl::Status CheckFits(const kube::Json& claim, const kube::Json& persistent_volume);

}  // namespace lunkeeper
