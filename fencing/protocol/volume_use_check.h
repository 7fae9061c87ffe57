#pragma once
// Whether a node may ask for a volume at all: only what its pods use. Thread-safe; may block for some
// seconds.

#include <string>

#include "absl/status/status.h"
#include "devices/types.h"

namespace lunkeeper {

class VolumeUseCheck {
 public:
  virtual ~VolumeUseCheck() = default;
  // FAILED_PRECONDITION, in words: no pod on this machine uses the volume. OK also where nobody can tell.
  virtual absl::Status CheckUse(const std::string& machine, const VolumeId& volume) = 0;
};

}  // namespace lunkeeper
