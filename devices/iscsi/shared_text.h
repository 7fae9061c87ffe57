#pragma once
// A short text in memory that one thread writes while others, perhaps of other processes, read it. A reader
// may see a mixture of two texts for a moment, never anything that does not end. All zero is the empty text.
// Store allocates nothing.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>

namespace lunkeeper {

template <size_t kSize>
class SharedText {
 public:
  // What does not fit is cut off.
  void Store(const char* text) {
    char bytes[kSize] = {};
    std::memcpy(bytes, text, std::min(std::strlen(text), kSize - 1));
    for (size_t i = 0; i < kWords; ++i) {
      uint64_t word;
      std::memcpy(&word, bytes + i * sizeof(word), sizeof(word));
      words_[i].store(word, std::memory_order_relaxed);
    }
  }

  // Whether Store of this text would change nothing. Allocates nothing.
  bool Holds(const char* text) const {
    SharedText other{};
    other.Store(text);
    return std::equal(std::begin(words_), std::end(words_), std::begin(other.words_),
                      [](const auto& a, const auto& b) {
                        return a.load(std::memory_order_relaxed) == b.load(std::memory_order_relaxed);
                      });
  }

  std::string Load() const {
    char bytes[kSize + 1] = {};
    for (size_t i = 0; i < kWords; ++i) {
      const uint64_t word = words_[i].load(std::memory_order_relaxed);
      std::memcpy(bytes + i * sizeof(word), &word, sizeof(word));
    }
    return bytes;
  }

 private:
  static_assert(kSize % sizeof(uint64_t) == 0);
  static constexpr size_t kWords = kSize / sizeof(uint64_t);
  std::atomic<uint64_t> words_[kWords];
};

}  // namespace lunkeeper
