#include "plugin/backends.h"

#include "plugin/base/status_macros.h"

namespace lunkeeper {

absl::Status Backends::Ready() const {
  if (array != nullptr) RETURN_IF_ERROR(array_serving());
  if (initiator != nullptr) RETURN_IF_ERROR(initiator->List().status());
  return absl::OkStatus();
}

}  // namespace lunkeeper
