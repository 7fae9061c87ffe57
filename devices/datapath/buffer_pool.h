#pragma once
// A fixed piece of locked memory, given out in blocks of 4 KiB to 1 MiB (a buddy allocator). Never grows: an
// empty pool says so, and its owner takes on no more work until something comes back.
//
// Thread safety: none; one thread owns a pool. All calls but the constructor take constant time and touch
// only memory that is present. Ownership: blocks belong to the pool and go back to it before it is destroyed.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lunkeeper {

class BufferPool {
 public:
  static constexpr size_t kSmallestBlock = size_t{4} << 10;
  static constexpr size_t kLargestBlock = size_t{1} << 20;

  // `bytes` is rounded down to a multiple of kLargestBlock, of which there is at least one. Memory that
  // cannot be had throws std::bad_alloc.
  explicit BufferPool(size_t bytes);
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool();

  // The smallest block that holds `bytes` (at most kLargestBlock), aligned to its own size; nullptr: none is
  // free.
  char* Allocate(size_t bytes);
  // The same, but out of the pieces of broken blocks: nullptr where a whole one would have to be split.
  char* AllocateFromPieces(size_t bytes);
  // Frees the end of a block of which only the first `bytes` are needed.
  void Shrink(char* block, size_t bytes);
  void Free(char* block);

  // What could be given out in blocks of the largest size: less than free_bytes() where memory is in pieces.
  size_t whole_bytes() const { return whole_blocks_ * kLargestBlock; }
  size_t free_bytes() const { return free_bytes_; }
  size_t size_bytes() const { return pages_.size() * kSmallestBlock; }
  // What Allocate(bytes) takes out of free_bytes().
  static size_t BlockSize(size_t bytes);

 private:
  static constexpr int kOrders = 9;
  static constexpr uint32_t kNone = UINT32_MAX;

  // What is known of a block is kept with its first page.
  struct Page {
    uint32_t previous = kNone;
    uint32_t next = kNone;
    uint8_t order = 0;
    bool free = false;
  };

  static int OrderOf(size_t bytes);
  uint32_t PageOf(const char* block) const {
    return static_cast<uint32_t>((block - memory_) / kSmallestBlock);
  }
  char* AllocateBelow(int end_order, size_t bytes);
  void PushFree(uint32_t page, int order);
  void TakeFree(uint32_t page);

  char* memory_ = nullptr;
  std::vector<Page> pages_;
  std::array<uint32_t, kOrders> free_lists_;
  size_t free_bytes_ = 0;
  size_t whole_blocks_ = 0;
};

}  // namespace lunkeeper
