// Words for people, in errors and in `lunkeeper status`. A publish_context, which orchestrators store, has a
// list of its own (publish_context.cc), so that these words may change.
#include "devices/array/grant_store.h"

namespace lunkeeper {

const char* ToText(Access access) {
  // Without a default, so that the compiler names this place when a kind of access is added.
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
