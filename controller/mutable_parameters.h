#pragma once
// The parameters of a VolumeAttributesClass: what may change of a volume while it lives. A pure function,
// thread-safe. Failure is INVALID_ARGUMENT with the key, its fault and what is allowed.

#include "absl/status/statusor.h"
#include "controller/request.h"
#include "devices/array/volume_store.h"

namespace lunkeeper {

// Keys that are not named stay as they are. An unknown key is refused; keys that Kubernetes adds
// (csi.storage.k8s.io/…) are ignored. `required`: at least one.
absl::StatusOr<VolumeChange> ParseMutableParameters(const StringMap& parameters, bool required = false);

}  // namespace lunkeeper
