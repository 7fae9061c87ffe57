#pragma once
// A grant as the text map that travels from ControllerPublishVolume to NodeStageVolume (CSI:
// publish_context). Pure functions; thread-safe. The map holds the CHAP secret: never log it. It comes back
// from outside, so FromPublishContext checks every value; keys it does not know are ignored, because
// orchestrators may add their own.

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "devices/array/array.h"

namespace lunkeeper {

using PublishContext = std::map<std::string, std::string>;

PublishContext ToPublishContext(const Grant& grant);

// The grant of `volume`; its owner is the orchestrator. INVALID_ARGUMENT names the key that is missing or
// wrong, never a secret value.
absl::StatusOr<Grant> FromPublishContext(const VolumeId& volume, const PublishContext& context);

}  // namespace lunkeeper
