// Asked by /readyz, by CSI's Probe and by `lunkeeper status`, from any thread; each answer is fresh.
#include "plugin/backends.h"

#include "base/status_macros.h"

namespace lunkeeper {

absl::Status Backends::CheckReady() const {
  if (array_serving) RETURN_IF_ERROR(array_serving());
  return initiator != nullptr ? devices_serving() : absl::OkStatus();
}

}  // namespace lunkeeper
