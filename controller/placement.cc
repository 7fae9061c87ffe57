#include "controller/placement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "controller/request.h"

namespace lunkeeper {
namespace {

std::string NamesOf(const std::vector<NamedArray>& arrays) {
  return absl::StrJoin(arrays, ", ", [](std::string* out, const NamedArray& array) { *out += array.name; });
}

absl::StatusOr<NamedArray> Prefer(const std::vector<NamedArray>& arrays,
                                  const csi::v1::TopologyRequirement& requirement) {
  const auto by_default =
      std::find_if(arrays.begin(), arrays.end(), [](const NamedArray& array) { return array.is_default; });
  if (by_default != arrays.end()) return *by_default;
  for (const csi::v1::Topology& place : requirement.preferred()) {
    const auto reached = std::find_if(arrays.begin(), arrays.end(),
                                      [&](const NamedArray& array) { return Reaches(place, array.name); });
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
    } else if (refusal = reached; !absl::IsResourceExhausted(reached)) {
      return refusal;
    }
  }
  if (fitting.empty()) return refusal;
  return fitting.size() == 1 ? fitting.front() : Prefer(fitting, requirement);
}

absl::Status CheckPool(const std::vector<NamedArray>& arrays, const std::string& pool) {
  if (pool.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameter pool: there is no pool ", pool,
                   "; each array has one pool, without a name: leave `pool` out, ",
                   "and choose by the parameter array (there are ", NamesOf(arrays), ")"));
}

}  // namespace lunkeeper
