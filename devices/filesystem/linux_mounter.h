#pragma once
// The Mounter of a Linux machine (mounter.h is the contract). libmount reads options and the kernel's table.
// Child processes make the system calls, so that one that never returns holds up nobody. Binds use the calls
// of Linux 5.12 and later, which make a read-only mount in one step; libmount 2.38 takes two, with a writable
// mount between them. Thread-safe: no state.

#include <memory>
#include <vector>

#include "devices/filesystem/mounter.h"

namespace lunkeeper {

std::unique_ptr<Mounter> MakeLinuxMounter();

// Mounter::Mounts, from a file in the form of /proc/self/mountinfo (proc(5)).
absl::StatusOr<std::vector<Mount>> ReadMounts(const char* table_file);

}  // namespace lunkeeper
