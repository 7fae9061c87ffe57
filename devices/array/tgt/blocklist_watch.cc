#include "devices/array/tgt/blocklist_watch.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// 0: the answer does not say.
absl::StatusOr<uint64_t> ReadMapNumber(const CephPool& pool) {
  ASSIGN_OR_RETURN(const std::string answer,
                   pool.AskMonitors(R"({"prefix": "osd stat", "format": "json"})", "read the map's number"));
  const nlohmann::json parsed = nlohmann::json::parse(answer, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object() || !parsed.contains("epoch") || !parsed["epoch"].is_number_unsigned()) return 0;
  return parsed["epoch"].get<uint64_t>();
}

// Not asked for as JSON: Ceph 16's is followed by a stray "[]".
absl::StatusOr<std::set<std::string>> ListBlocked(const CephPool& pool) {
  ASSIGN_OR_RETURN(
      const std::string answer,
      pool.AskMonitors(R"({"prefix": "osd blocklist ls", "format": "plain"})", "list refused clients"));
  std::set<std::string> blocked;
  for (const absl::string_view line : absl::StrSplit(answer, '\n', absl::SkipEmpty()))
    blocked.emplace(line.substr(0, line.find(' ')));  // and until when
  return blocked;
}

}  // namespace

// The number first: a list of a later map is read once more. So it is after a LookAgain meanwhile.
absl::StatusOr<std::set<std::string>> BlocklistWatch::ListNew() {
  ASSIGN_OR_RETURN(const uint64_t map, ReadMapNumber(pool_));
  {
    const absl::MutexLock lock(&mu_);
    if (map != 0 && std::exchange(map_, map) == map) return std::set<std::string>();
  }
  absl::StatusOr<std::set<std::string>> blocked = ListBlocked(pool_);
  if (!blocked.ok()) LookAgain();
  return blocked;
}

void BlocklistWatch::LookAgain() {
  const absl::MutexLock lock(&mu_);
  map_ = 0;
}

}  // namespace lunkeeper
