#pragma once
// Which pool an agent serves under its array's name, and which copy of that pool.
//
// All copies of a pool have one lineage, made with the pool. A copy that was restored from a backup and that
// an operator accepted (`lunkeeper accept-restore`) is newer than every other from then on: the old host may
// come back with what it had, and must not be taken for the array any more. Copies that nobody accepted
// look the same. Pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace lunkeeper {

struct PoolIdentity {
  std::string lineage;      // hexadecimal digits
  int64_t restored_at = 0;  // when this copy was accepted, in nanoseconds since 1970; 0: never
  friend bool operator==(const PoolIdentity&, const PoolIdentity&) = default;
};

std::string ToText(const PoolIdentity& identity);
// None: `text` is not what ToText makes.
std::optional<PoolIdentity> ReadPoolIdentity(const std::string& text);

// OK: the same copy, or a newer one. UNAVAILABLE: an older copy, or another pool; says what to do.
absl::Status CheckCopy(const PoolIdentity& found, const PoolIdentity& known);

}  // namespace lunkeeper
