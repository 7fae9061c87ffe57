#include "fencing/kube/json.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lunkeeper::kube {

// Lookups never throw: get_ptr returns null where the type differs, and iteration over a null is empty.
// Objects come from the API server, but users write parts of them, so any field may have any type.
const Json& FieldAt(const Json& json, JsonPath path) {
  static const Json kNothing;
  const Json* at = &json;
  for (const char* key : path) {
    if (!at->is_object()) return kNothing;
    const auto found = at->find(key);
    if (found == at->end()) return kNothing;
    at = &*found;
  }
  return *at;
}

std::string TextAt(const Json& json, JsonPath path) {
  const auto* text = FieldAt(json, path).get_ptr<const std::string*>();
  return text == nullptr ? std::string() : *text;
}

// A number with a fraction or an exponent is none here; Kubernetes writes integers without either.
int64_t NumberAt(const Json& json, JsonPath path) {
  const auto* number = FieldAt(json, path).get_ptr<const Json::number_integer_t*>();
  return number == nullptr ? 0 : *number;
}

bool FlagAt(const Json& json, JsonPath path) {
  const auto* flag = FieldAt(json, path).get_ptr<const bool*>();
  return flag != nullptr && *flag;
}

absl::StatusOr<Json> ParseJson(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("this is not JSON");
  return json;
}

// The `replace` handler keeps dump() from throwing on bytes that are not UTF-8, such as a log text in an
// event.
std::string ToText(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string FormatMicroTime(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

absl::StatusOr<absl::Time> ParseMicroTime(const std::string& text) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error))
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not a time: ", error));
  return time;
}

}  // namespace lunkeeper::kube
