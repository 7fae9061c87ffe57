#pragma once
// What a grant allows, in a word for people.

#include "devices/array/access_control.h"

namespace lunkeeper {

inline const char* ToText(Access access) {
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
