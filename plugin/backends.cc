// Asked by /readyz, by CSI's Probe and by `lunkeeper status`, from any thread; each answer is fresh.
#include "plugin/backends.h"

#include "base/status_macros.h"

namespace lunkeeper {

absl::Status Backends::CheckReady() const {
  RETURN_IF_ERROR(CheckArray());
  return CheckDevices();
}

absl::Status Backends::CheckArray() const { return array_serving ? array_serving() : absl::OkStatus(); }

absl::Status Backends::CheckDevices() const {
  return initiator != nullptr ? devices_serving() : absl::OkStatus();
}

}  // namespace lunkeeper
