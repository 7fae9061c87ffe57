// The orchestrator has a say by topology (requisite: must be reachable from there; preferred: in this order),
// the administrator by a StorageClass's parameter `array` and by the default array. The parameter counts
// most, then reachability, then the default, then the preferred places, and then room.
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

// At least one of them is left.
std::vector<NamedArray> KeepPreferred(const std::vector<NamedArray>& fitting,
                                      const csi::v1::TopologyRequirement& requirement) {
  for (const NamedArray& array : fitting)
    if (array.is_default) return {array};
  for (const csi::v1::Topology& place : requirement.preferred()) {
    std::vector<NamedArray> reached = fitting;
    std::erase_if(reached, [&](const NamedArray& array) { return !ReachesArray(place, array.name); });
    if (!reached.empty()) return reached;
  }
  return fitting;
}

// Of several, by their own answers.
absl::StatusOr<NamedArray> ChooseEmptiest(const std::vector<NamedArray>& fitting) {
  if (fitting.size() == 1) return fitting.front();
  absl::StatusOr<NamedArray> emptiest = absl::InternalError("no array fits");
  uint64_t most_bytes = 0;
  for (const NamedArray& array : fitting) {
    const absl::StatusOr<PoolCapacity> pool = array.array->volumes().GetCapacity();
    if (!pool.ok()) {
      if (!emptiest.ok()) emptiest = pool.status();
    } else if (!emptiest.ok() || pool->creatable_bytes > most_bytes) {
      most_bytes = pool->creatable_bytes;
      emptiest = array;
    }
  }
  return emptiest;
}

}  // namespace

absl::StatusOr<NamedArray> ChooseArray(const std::vector<NamedArray>& arrays, const std::string& named,
                                       const csi::v1::TopologyRequirement& requirement) {
  // Most likely they were removed: not INVALID_ARGUMENT, for it is not the request that is wrong.
  if (arrays.empty() && named.empty())
    return absl::ResourceExhaustedError("there is no array, or each was removed by an operator");
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
  return ChooseEmptiest(KeepPreferred(fitting, requirement));
}

absl::Status CheckPool(const std::vector<NamedArray>& arrays, const std::string& pool) {
  if (pool.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameter pool: there is no pool ", pool,
                   "; each array has one pool, without a name: leave `pool` out, ",
                   "and choose by the parameter array (there are ", NamesOf(arrays), ")"));
}

}  // namespace lunkeeper
