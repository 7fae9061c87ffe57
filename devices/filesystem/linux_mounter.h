#pragma once
// The Mounter of a Linux machine. libmount reads options and the kernel's table; the system calls themselves
// are made by child processes, so that one that never returns holds up nobody, and binds use the calls of
// Linux 5.12 and later, which put a read-only mount in its place in one step (libmount 2.38 takes two, with a
// writable mount between them).

#include <memory>

#include "devices/filesystem/mounter.h"

namespace lunkeeper {

std::unique_ptr<Mounter> MakeLinuxMounter();

}  // namespace lunkeeper
