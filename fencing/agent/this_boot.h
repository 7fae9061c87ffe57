#pragma once
// Numbers heartbeats: by the boot of this machine's kernel, and by the time since that boot.

#include <cstdint>
#include <string>

namespace lunkeeper {

// Random for each boot; proc(5), /proc/sys/kernel/random/boot_id. Empty if it cannot be read.
std::string BootId();
// Rises for as long as the machine runs, also over restarts of this process.
uint64_t MillisSinceBoot();

}  // namespace lunkeeper
