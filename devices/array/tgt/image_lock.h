#pragma once
// The exclusive lock of an RBD image, which a dead gateway leaves behind. librbd breaks it at the first
// write, but has the monitors shut the dead client out before that, which takes up to a second. Who has shut
// it out already can do without.
//
// Without state; failure as in ceph_pool.h.

#include <set>

#include "absl/status/status.h"
#include "devices/array/tgt/ceph_pool.h"
#include "devices/array/tgt/gateway_record.h"

namespace lunkeeper {

// Breaks the lock if one of these clients has it. They are shut out, and `pool` has waited for the map.
absl::Status BreakImageLock(const CephPool& pool, const RbdImage& image, const std::set<ClientAddress>& dead);

}  // namespace lunkeeper
