#pragma once
// Ids of caches that mean something by themselves (devices/array/tgt/cache_id.h), and how an id differs
// from the product id of another array's LUN.

#include <algorithm>
#include <string_view>

namespace lunkeeper {

// The LUN's array acknowledges only what lasts: there is no cache that could be lost. Such are images of
// Ceph behind tgtd, which writes a WRITE SAME to them in single blocks (1 s for 128 KiB): so the kernel
// writes zeroes itself.
inline constexpr char kNothingCached[] = "0000000000000000";

// In place of the id, for a LUN that shows none: that its array lost its cache would not be noticed.
inline constexpr char kUnknownCache[] = "unknown";

inline bool IsCacheId(std::string_view product) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return product.size() == 16 && std::ranges::all_of(product, is_digit);
}

}  // namespace lunkeeper
