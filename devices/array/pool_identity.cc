// The copy that a person accepted last is the newest: a time tells that, and a count of restores does not.
// The same backup may be restored twice, first on a host that turns out to be bad and then on another one,
// and both copies would have the same count.
#include "devices/array/pool_identity.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

namespace lunkeeper {
namespace {

std::string HistoryOf(const PoolIdentity& identity) {
  if (identity.restored_at == 0) return "never restored";
  return absl::StrCat(
      "restored at ",
      absl::FormatTime(absl::RFC3339_sec, absl::FromUnixNanos(identity.restored_at), absl::UTCTimeZone()));
}

}  // namespace

std::string ToText(const PoolIdentity& identity) {
  return absl::StrCat(identity.lineage, ".", identity.restored_at);
}

std::optional<PoolIdentity> ReadPoolIdentity(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '.');
  PoolIdentity identity;
  if (parts.size() != 2 || parts[0].empty() || parts[0].size() > 64 ||
      !std::ranges::all_of(parts[0], [](char c) { return absl::ascii_isxdigit(c); }) ||
      !absl::SimpleAtoi(parts[1], &identity.restored_at) || identity.restored_at < 0)
    return std::nullopt;
  identity.lineage = parts[0];
  return identity;
}

absl::Status CheckCopy(const PoolIdentity& found, const PoolIdentity& known) {
  if (found.lineage != known.lineage)
    return absl::UnavailableError(
        "the pool there is another one than the array's: correct the address, or, if the array was made "
        "anew, restart the controllers");
  if (found.restored_at >= known.restored_at) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "the pool there (", HistoryOf(found), ") is an older copy of the array's (", HistoryOf(known),
      "): end its agent, and take its address away; or, if you mean to go on with this one, "
      "restart the controllers"));
}

}  // namespace lunkeeper
