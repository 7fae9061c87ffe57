#pragma once
// What the checking tools write into a block: its number and a version, and a pattern made from both over all
// of it, so that an older, misplaced, torn or foreign block differs from the right one. Pure functions.

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace lunkeeper {

inline constexpr size_t kStampBlockBytes = 4096;
using StampBlock = std::span<char, kStampBlockBytes>;

namespace internal {
inline constexpr uint64_t kStampMagic = 0x4c554e4b53544d50;  // "LUNKSTMP"
// SplitMix64: neighbouring inputs give unlike outputs.
inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
inline void StampWord(StampBlock block, size_t word, uint64_t value) {
  std::memcpy(block.data() + word * sizeof value, &value, sizeof value);
}
inline uint64_t StampWord(StampBlock block, size_t word) {
  uint64_t value;
  std::memcpy(&value, block.data() + word * sizeof value, sizeof value);
  return value;
}
}  // namespace internal

inline void WriteStamp(StampBlock block, uint64_t number, uint64_t version) {
  internal::StampWord(block, 0, internal::kStampMagic);
  internal::StampWord(block, 1, number);
  internal::StampWord(block, 2, version);
  const uint64_t seed = internal::Mix(number * 0x10001 + version);
  for (size_t word = 3; word < kStampBlockBytes / 8; ++word) internal::StampWord(block, word, seed + word);
}

// The version of block `number`; nullopt: this is not a whole stamp of that block.
inline std::optional<uint64_t> ReadStamp(StampBlock block, uint64_t number) {
  if (internal::StampWord(block, 0) != internal::kStampMagic || internal::StampWord(block, 1) != number)
    return {};
  const uint64_t version = internal::StampWord(block, 2);
  const uint64_t seed = internal::Mix(number * 0x10001 + version);
  for (size_t word = 3; word < kStampBlockBytes / 8; ++word) {
    if (internal::StampWord(block, word) != seed + word) return {};
  }
  return version;
}

}  // namespace lunkeeper
