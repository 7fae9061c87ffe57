#pragma once
// Reads the API server's JSON without exceptions: a missing field, or one of another type than asked for,
// reads as empty. Pure functions, thread-safe.

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lunkeeper::kube {

using Json = nlohmann::json;
using JsonPath = std::initializer_list<const char*>;

// FieldAt(pod, {"spec", "nodeName"}). A missing field is null. The result lives as long as `json` does.
const Json& FieldAt(const Json& json, JsonPath path);
std::string TextAt(const Json& json, JsonPath path);
int64_t NumberAt(const Json& json, JsonPath path);
bool FlagAt(const Json& json, JsonPath path);

// INVALID_ARGUMENT: the text is not JSON.
absl::StatusOr<Json> ParseJson(std::string_view text);
// Bytes that are not UTF-8 are replaced.
std::string ToText(const Json& json);

// metav1.MicroTime: 2026-11-20T22:10:05.123456Z. INVALID_ARGUMENT: the text is no time.
std::string FormatMicroTime(absl::Time time);
absl::StatusOr<absl::Time> ParseMicroTime(const std::string& text);

}  // namespace lunkeeper::kube
