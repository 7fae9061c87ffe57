#include "devices/array/grant_store.h"

namespace lunkeeper {

const char* ToText(Access access) {
  switch (access) {
    case Access::kExclusive:
      return "exclusive";
    case Access::kReadOnly:
      return "read-only";
    case Access::kSharedWrite:
      return "shared-write";
  }
  return "?";
}

}  // namespace lunkeeper
