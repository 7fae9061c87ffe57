#include "plugin/object_names.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lunkeeper {

using kube::Json;
using kube::TextAt;

bool IsObjectName(const std::string& name) {
  const auto plain = [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c); };
  return !name.empty() && name.size() <= 253 && plain(name.front()) && plain(name.back()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return plain(c) || c == '-' || c == '.'; });
}

std::optional<std::pair<std::string, std::string>> SplitNames(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  if (parts.size() != 2 || !IsObjectName(parts[0]) || !IsObjectName(parts[1])) return std::nullopt;
  return std::pair(parts[0], parts[1]);
}

std::string NamesText(const Json& reference) {
  return absl::StrCat(TextAt(reference, {"namespace"}), "/", TextAt(reference, {"name"}));
}

std::string ObjectName(const Json& object) { return TextAt(object, {"metadata", "name"}); }

}  // namespace lunkeeper
