#pragma once
// A write of the simulated data path.

#include <cstddef>
#include <cstdint>

namespace lunkeeper::fencing::sim {

constexpr size_t kBlocks = 10;  // of a volume; one for each node that writes to a shared one

struct Write {
  size_t block = 0;
  uint64_t sequence = 0;  // rises with each write to the volume, of any node
};

}  // namespace lunkeeper::fencing::sim
