#include "devices/array/tgt/gateway_standbys.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(100);

std::string StandbysName(const std::string& array) { return absl::StrCat("lunkeeper.", array, ".standbys"); }

}  // namespace

// An entry is "COUNT HOST". One that is new since the first look counts, too.
absl::StatusOr<std::set<std::string>> FindStandbys(const CephPool& pool, const std::string& array,
                                                   absl::Duration look) {
  const absl::Time deadline = absl::Now() + look;
  ASSIGN_OR_RETURN(const auto before, pool.ReadKeys(StandbysName(array)));
  std::set<std::string> hosts;
  while (hosts.empty() && absl::Now() < deadline) {
    absl::SleepFor(kLookEvery);
    ASSIGN_OR_RETURN(const auto entries, pool.ReadKeys(StandbysName(array)));
    for (const auto& [holder, entry] : entries) {
      const auto known = before.find(holder);
      if (known == before.end() || known->second != entry) hosts.insert(entry.substr(entry.find(' ') + 1));
    }
  }
  return hosts;
}

Standby::Standby(const CephPool& pool, const std::string& array, std::string holder, std::string host)
    : pool_(pool), object_(StandbysName(array)), holder_(std::move(holder)), host_(std::move(host)) {}

Standby::~Standby() {
  if (count_ == 0) return;
  const absl::Status removed = pool_.WriteKey(object_, holder_, "");
  if (!removed.ok()) LogWarn("array", std::string(removed.message()));
}

void Standby::CountUp() {
  const absl::Status counted = pool_.WriteKey(object_, holder_, absl::StrCat(++count_, " ", host_));
  if (!counted.ok() && counted_.ok())
    LogWarn("array", absl::StrCat("nobody can see that this agent stands by: ", counted.message()));
  counted_ = counted;
}

}  // namespace lunkeeper
