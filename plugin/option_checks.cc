#include "plugin/option_checks.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lunkeeper {

std::string IsAbsolutePath(const std::string& value) {
  if (absl::StartsWith(value, "/") && !absl::StrContains(value, "/../") && !absl::EndsWith(value, "/.."))
    return "";
  return absl::StrCat("\"", value, "\": want an absolute path without ..");
}

std::function<std::string(const std::string&)> PlainName(size_t longest) {
  return [longest](const std::string& value) -> std::string {
    const bool plain = std::all_of(value.begin(), value.end(), [](char c) {
      return absl::ascii_islower(static_cast<unsigned char>(c)) ||
             absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
    });
    if (plain && !value.empty() && value.size() <= longest) return "";
    return absl::StrCat("\"", value, "\": want 1 to ", longest, " of a-z, 0-9 and -");
  };
}

}  // namespace lunkeeper
