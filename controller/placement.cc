// The orchestrator has a say by topology (requisite: must be reachable from there; preferred: in this order),
// the administrator by a StorageClass's parameter `array` and by the default array. The parameter counts
// most, then reachability, then the default. With several arrays left and none of them preferred, a random
// choice would scatter volumes in a way that nobody asked for: it is refused instead.
#include "controller/placement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "controller/request.h"

namespace lunkeeper {
namespace {

// For errors: who reads one may not know which arrays there are.
std::string NamesOf(const std::vector<NamedArray>& arrays) {
  return absl::StrJoin(arrays, ", ", [](std::string* out, const NamedArray& array) { *out += array.name; });
}

absl::StatusOr<NamedArray> ChoosePreferred(const std::vector<NamedArray>& arrays,
                                           const csi::v1::TopologyRequirement& requirement) {
  const auto by_default =
      std::find_if(arrays.begin(), arrays.end(), [](const NamedArray& array) { return array.is_default; });
  if (by_default != arrays.end()) return *by_default;
  for (const csi::v1::Topology& place : requirement.preferred()) {
    const auto reached = std::find_if(arrays.begin(), arrays.end(), [&](const NamedArray& array) {
      return ReachesArray(place, array.name);
    });
    if (reached != arrays.end()) return *reached;
  }
  return absl::InvalidArgumentError(absl::StrCat("parameter array: there are ", NamesOf(arrays),
                                                 " and none is the default: name one of them"));
}

}  // namespace

absl::StatusOr<NamedArray> ChooseArray(const std::vector<NamedArray>& arrays, const std::string& named,
                                       const csi::v1::TopologyRequirement& requirement) {
  std::vector<NamedArray> fitting;
  absl::Status refusal = absl::InvalidArgumentError(
      absl::StrCat("parameter array: there is no array ", named, "; there are ", NamesOf(arrays)));
  for (const NamedArray& array : arrays) {
    if (!named.empty() && array.name != named) continue;
    const absl::Status reached = CheckAccessibility(requirement, array.name);
    if (reached.ok()) {
      fitting.push_back(array);
      continue;
    }
    // Any other code means that the request itself is wrong, and no other array can help.
    if (!absl::IsResourceExhausted(reached)) return reached;
    refusal = reached;
  }
  if (fitting.empty()) return refusal;
  return fitting.size() == 1 ? fitting.front() : ChoosePreferred(fitting, requirement);
}

absl::Status CheckPool(const std::vector<NamedArray>& arrays, const std::string& pool) {
  if (pool.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameter pool: there is no pool ", pool,
                   "; each array has one pool, without a name: leave `pool` out, ",
                   "and choose by the parameter array (there are ", NamesOf(arrays), ")"));
}

}  // namespace lunkeeper
