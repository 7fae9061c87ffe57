#pragma once
// Grants taken from an array in the same process, within the array's own limits of time. Thread-safe as the
// array is; `array` outlives it.

#include <memory>

#include "devices/array/array.h"
#include "node/grant_source.h"

namespace lunkeeper {

std::unique_ptr<GrantSource> MakeArrayGrantSource(GrantStore& store, const NodeId& node);

}  // namespace lunkeeper
