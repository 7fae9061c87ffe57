#include "plugin/option_checks.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lunkeeper {

std::string IsAbsolutePath(const std::string& value) {
  if (absl::StartsWith(value, "/") && !absl::StrContains(value, "/../") && !absl::EndsWith(value, "/.."))
    return "";
  return absl::StrCat("\"", value, "\": want an absolute path without ..");
}

}  // namespace lunkeeper
