#pragma once
// Ids of caches that mean something by themselves (devices/array/tgt/cache_id.h).

namespace lunkeeper {

// The LUN's array acknowledges only what lasts: there is no cache that could be lost. Such are images of
// Ceph behind tgtd, which writes a WRITE SAME to them in single blocks (1 s for 128 KiB): so the kernel
// writes zeroes itself.
inline constexpr char kNothingCached[] = "0000000000000000";

}  // namespace lunkeeper
