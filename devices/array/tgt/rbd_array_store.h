#pragma once
// The store of RBD images, with its catalogue in the same pool of a Ceph cluster.

#include <cstdint>

#include "absl/status/statusor.h"
#include "devices/array/tgt/opened_store.h"
#include "devices/array/tgt/tgt_array.h"

namespace lunkeeper {

// As OpenFileStore. FAILED_PRECONDITION also: another agent has the catalogue open; and as CephPool::Connect.
// UNAVAILABLE: no monitor answers. Nothing was made in the pool.
absl::StatusOr<OpenedStore> OpenRbdStore(const TgtArrayOptions& options, uint64_t remembered);

}  // namespace lunkeeper
