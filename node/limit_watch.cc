// A look is one question to the arrays, and one to the data path only where a volume has had limits. It
// changes nothing where all devices have them: the version says so (LimitSetter).
#include "node/limit_watch.h"

#include <utility>

namespace lunkeeper {

LimitWatch::LimitWatch(GrantStore& grants, const NodeId& node,
                       std::function<absl::StatusOr<std::vector<Device>>()> devices, LimitSetter::Set set,
                       absl::Duration every)
    : grants_(grants),
      node_(node),
      devices_(std::move(devices)),
      setter_(std::move(set)),
      looks_(every, [this] { PollGrants(); }) {}

void LimitWatch::PollGrants() {
  const auto grants = grants_.ListGrants({.volume = {}, .node = node_});
  if (!grants.ok()) return;
  LimitsByVolume limits;
  for (const Grant& grant : *grants)
    if (grant.limits.version != 0) limits[grant.volume] = grant.limits;
  if (limits.empty()) return;
  setter_.Report(limits);
  if (const auto devices = devices_(); devices.ok()) setter_.Apply(*devices);
}

}  // namespace lunkeeper
