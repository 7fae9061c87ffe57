// A VolumeAttributesClass is written by hand, and read by nobody until a claim names it. So each error lists
// what is allowed, and a value that is nearly right (a sign, a space, "10M") is refused rather than guessed
// at.
#include "controller/mutable_parameters.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// Lower ones would make a mkfs, or the file system's journal, take minutes: pods would look hung.
constexpr uint64_t kLeastIops = 100;
constexpr uint64_t kLeastBandwidth = uint64_t{4} << 20;
// Beyond any array; above it a number is a slip of the hand.
constexpr uint64_t kMostIops = 1'000'000'000;
constexpr uint64_t kMostBandwidth = uint64_t{1} << 40;
constexpr size_t kLongestShown = 128;

absl::Status Invalid(const std::string& key, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("mutable_parameters: ", key.substr(0, kLongestShown), ": ", why));
}

absl::Status InvalidIops() {
  return Invalid("maxIops", absl::StrCat("want a whole number of requests a second from ", kLeastIops, " to ",
                                         kMostIops, ", or unlimited"));
}

absl::Status InvalidBandwidth() {
  return Invalid("maxBandwidth",
                 "want bytes a second from 4Mi to 1Ti, as a whole number with or without Ki, Mi, Gi or Ti, "
                 "or unlimited");
}

// Digits alone: a sign, a space or a point is a slip.
bool ReadDigits(const std::string& text, uint64_t* value) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, value);
}

// As Kubernetes writes quantities, with the binary units.
bool ReadBytes(std::string text, uint64_t* value) {
  int shift = 0;
  if (text.ends_with('i') && text.size() > 2) {
    shift = 10 * static_cast<int>(std::string("KMGT").find(text[text.size() - 2]) + 1);
    if (shift == 0) return false;  // npos + 1
    text.resize(text.size() - 2);
  }
  if (!ReadDigits(text, value) || *value > (std::numeric_limits<uint64_t>::max() >> shift)) return false;
  *value <<= shift;
  return true;
}

absl::Status SetChange(const std::string& key, const std::string& value, VolumeChange* out) {
  const bool unlimited = value == "unlimited";
  uint64_t number = 0;
  if (key == "maxIops") {
    if (!unlimited && (!ReadDigits(value, &number) || number < kLeastIops || number > kMostIops))
      return InvalidIops();
    out->max_iops = number;
  } else if (key == "maxBandwidth") {
    if (!unlimited && (!ReadBytes(value, &number) || number < kLeastBandwidth || number > kMostBandwidth))
      return InvalidBandwidth();
    out->max_bandwidth = number;
  } else if (key == "durability") {
    if (value != "cached" && value != "sync") return Invalid(key, "want cached or sync");
    out->durability = value == "sync" ? Durability::kSync : Durability::kCached;
  } else if (key == "digests") {
    out->digests = ParseDigests(value);
    if (!out->digests) return Invalid(key, "want none, header or all");
  } else {
    return Invalid(key,
                   "unknown; there are maxIops, maxBandwidth, durability (cached, sync) and digests (none, "
                   "header, all)");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<VolumeChange> ParseMutableParameters(const StringMap& parameters, bool required) {
  RETURN_IF_ERROR(CheckMap("mutable_parameters", parameters));
  VolumeChange change;
  bool any = false;
  for (const auto& [key, value] : parameters) {
    if (IsAddedByKubernetes(key)) continue;
    RETURN_IF_ERROR(SetChange(key, value, &change));
    any = true;
  }
  if (any || !required) return change;
  return absl::InvalidArgumentError(
      "mutable_parameters: required, but empty; there are maxIops, maxBandwidth, durability (cached, sync) "
      "and digests (none, header, all)");
}

}  // namespace lunkeeper
