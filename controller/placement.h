#pragma once
// Which array a new volume goes to. Pure functions of what Arrays::ListArrays returns, thread-safe.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "csi/v1/csi.pb.h"
#include "devices/array/arrays.h"

namespace lunkeeper {

// The array of this name or, if `named` is empty, one that the places asked for reach: the only one, else the
// default, else the first that is preferred. INVALID_ARGUMENT: no array has that name, or it is not clear
// which is meant. RESOURCE_EXHAUSTED: none of the places reaches it.
absl::StatusOr<NamedArray> ChooseArray(const std::vector<NamedArray>& arrays, const std::string& named,
                                       const csi::v1::TopologyRequirement& requirement);

// An array has one pool, without a name of its own: INVALID_ARGUMENT for any that is named, and what to name
// instead.
absl::Status CheckPool(const std::vector<NamedArray>& arrays, const std::string& pool);

}  // namespace lunkeeper
