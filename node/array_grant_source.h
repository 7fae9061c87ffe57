#pragma once
// The source of grants of a node that runs in one process with its array (mode `all`). Deadlines are ignored:
// the array's own limits are shorter. Thread-safe as the array is; `array` outlives it.

#include <memory>

#include "devices/array/array.h"
#include "node/grant_source.h"

namespace lunkeeper {

std::unique_ptr<GrantSource> MakeArrayGrantSource(GrantStore& store, const NodeId& node);

}  // namespace lunkeeper
