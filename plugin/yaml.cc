// Only what JSON has, so a few rules are enough:
//   an object   a line for each key, its value behind it or, two columns deeper, below it
//   a list      its items two columns deeper than their dashes, which stand where the first item's margin was
//   the rest    as in JSON, whose texts, numbers and empty lists are YAML's, too
#include "plugin/yaml.h"

#include "absl/strings/str_cat.h"

namespace lunkeeper {
namespace {

using kube::Json;

bool IsOneLine(const Json& json) { return !json.is_structured() || json.empty(); }

// Every line of it, the first one too, begins with so many spaces.
std::string Block(const Json& json, size_t indent) {
  const std::string margin(indent, ' ');
  if (IsOneLine(json)) return absl::StrCat(margin, kube::ToText(json), "\n");
  std::string text;
  if (json.is_array()) {
    for (const Json& item : json)
      absl::StrAppend(&text, margin, "- ", Block(item, indent + 2).substr(indent + 2));
    return text;
  }
  for (const auto& [key, value] : json.items())
    absl::StrAppend(&text, margin, key, ":", IsOneLine(value) ? " " : "\n",
                    Block(value, IsOneLine(value) ? 0 : indent + 2));
  return text;
}

}  // namespace

std::string ToYaml(const Json& json) { return Block(json, 0); }

}  // namespace lunkeeper
