#pragma once
// Which life of this machine's kernel it is, and how far into it: what heartbeats are numbered by.

#include <cstdint>
#include <string>

namespace lunkeeper {

// Empty if nobody can say.
std::string BootId();
// Rises for as long as the machine runs, whatever becomes of this process.
uint64_t MillisSinceBoot();

}  // namespace lunkeeper
