#pragma once
// Which array a new volume goes to. Thread-safe; keeps nothing.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "csi/v1/csi.pb.h"
#include "devices/array/arrays.h"

namespace lunkeeper {

// The array of this name or, if `named` is empty, one that the places asked for reach: the only one, else the
// default, else the emptiest that the first of the preferred places reaches, else the emptiest of all.
// Several are asked how much room they have, and one that does not answer is left out. INVALID_ARGUMENT: no
// array has that name. RESOURCE_EXHAUSTED: none of the places reaches it, or there is no array at all. Other
// failures: no array answers.
absl::StatusOr<NamedArray> ChooseArray(const std::vector<NamedArray>& arrays, const std::string& named,
                                       const csi::v1::TopologyRequirement& requirement);

// An array has one pool, without a name of its own: INVALID_ARGUMENT for any that is named, and what to name
// instead.
absl::Status CheckPool(const std::vector<NamedArray>& arrays, const std::string& pool);

}  // namespace lunkeeper
