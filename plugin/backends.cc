// Asked by /readyz, by CSI's Probe and by `lunkeeper status`, from any thread; each answer is fresh.
#include "plugin/backends.h"

#include "base/status_macros.h"

namespace lunkeeper {

absl::Status Backends::CheckReady() const {
  RETURN_IF_ERROR(CheckArray());
  return CheckDevices();
}

absl::Status Backends::CheckAwaited() const {
  if (duplicates != nullptr && duplicates->IsWaiting()) {
    return absl::UnavailableError("the data path is gone, and its volumes wait for the next one");
  }
  return CheckArray();
}

absl::Status Backends::CheckNeeded() const {
  return duplicates != nullptr && duplicates->IsWaiting() ? absl::OkStatus() : CheckDevices();
}

absl::Status Backends::CheckArray() const { return array_serving ? array_serving() : absl::OkStatus(); }

absl::Status Backends::CheckDevices() const {
  return initiator != nullptr ? devices_serving() : absl::OkStatus();
}

}  // namespace lunkeeper
