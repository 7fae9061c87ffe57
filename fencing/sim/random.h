#pragma once
// The simulator's only source of chance: the same seed gives the same numbers on every machine. One thread.

#include <cstdint>
#include <utility>

#include "fencing/core/time.h"

namespace lunkeeper::fencing::sim {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}

  uint64_t Next() {  // splitmix64
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // Of [low, high].
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  Span Between(Span low, Span high) {
    return Span::OfMilliseconds(Between(low.milliseconds(), high.milliseconds()));
  }
  bool Percent(int64_t chance) { return Between(1, 100) <= chance; }
  template <class Container>
  auto& Pick(Container& from) {
    return from[static_cast<size_t>(Between(0, static_cast<int64_t>(from.size()) - 1))];
  }

 private:
  uint64_t state_;
};

}  // namespace lunkeeper::fencing::sim
