// A buddy allocator (Knuth, The Art of Computer Programming, 2.5). Blocks have 4 KiB times a power of two
// ("order" 0 to 8) and are aligned to their size, so that the buddy of a block, the other half of the next
// larger one, is found by flipping one bit of its page number. Free blocks of each order form a list through
// `pages_`; the memory itself is never touched for bookkeeping.
//
// Every call walks at most the nine orders. Splitting and joining keep the largest blocks whole where they
// can be: whole_bytes() is what decides whether another request of any size can be taken (fuse_channel.cc).

#include "devices/datapath/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <new>

namespace lunkeeper {

BufferPool::BufferPool(size_t bytes)
    : pages_(std::max<size_t>(bytes / kLargestBlock, 1) * (kLargestBlock / kSmallestBlock)) {
  // One block more than needed is reserved, and the rest unmapped, so that the first block can be aligned to
  // its size.
  const size_t wanted = size_bytes();
  void* area = ::mmap(nullptr, wanted + kLargestBlock, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) throw std::bad_alloc();
  char* const begin = static_cast<char*>(area);
  const size_t skip = (kLargestBlock - reinterpret_cast<uintptr_t>(begin) % kLargestBlock) % kLargestBlock;
  if (skip > 0) ::munmap(begin, skip);
  if (skip < kLargestBlock) ::munmap(begin + skip + wanted, kLargestBlock - skip);
  memory_ = begin + skip;
  // Present from now on: the I/O path must not wait for memory, which may be waiting for the I/O path.
  std::memset(memory_, 0, wanted);
  ::mlock(memory_, wanted);
  free_lists_.fill(kNone);
  const uint32_t stride = kLargestBlock / kSmallestBlock;
  for (uint32_t page = static_cast<uint32_t>(pages_.size()); page > 0; page -= stride) {
    PushFree(page - stride, kOrders - 1);
  }
}

BufferPool::~BufferPool() { ::munmap(memory_, size_bytes()); }

int BufferPool::OrderOf(size_t bytes) {
  const size_t blocks = (std::max<size_t>(bytes, 1) + kSmallestBlock - 1) / kSmallestBlock;
  return static_cast<int>(std::bit_width(blocks - 1));
}

size_t BufferPool::BlockSize(size_t bytes) { return kSmallestBlock << OrderOf(bytes); }

void BufferPool::PushFree(uint32_t page, int order) {
  Page& block = pages_[page];
  const auto list = static_cast<size_t>(order);
  block = {.previous = kNone, .next = free_lists_[list], .order = static_cast<uint8_t>(order), .free = true};
  if (block.next != kNone) pages_[block.next].previous = page;
  free_lists_[list] = page;
  free_bytes_ += kSmallestBlock << order;
  if (order == kOrders - 1) ++whole_blocks_;
}

void BufferPool::TakeFree(uint32_t page) {
  Page& block = pages_[page];
  if (block.next != kNone) pages_[block.next].previous = block.previous;
  if (block.previous != kNone) {
    pages_[block.previous].next = block.next;
  } else {
    free_lists_[block.order] = block.next;
  }
  block.free = false;
  free_bytes_ -= kSmallestBlock << block.order;
  if (block.order == kOrders - 1) --whole_blocks_;
}

char* BufferPool::Allocate(size_t bytes) { return AllocateBelow(kOrders, bytes); }

char* BufferPool::AllocateFromPieces(size_t bytes) { return AllocateBelow(kOrders - 1, bytes); }

// From free blocks of an order below `end_order`.
char* BufferPool::AllocateBelow(int end_order, size_t bytes) {
  const int wanted = OrderOf(bytes);
  int order = wanted;
  while (order < end_order && free_lists_[static_cast<size_t>(order)] == kNone) ++order;
  if (order >= end_order) return nullptr;
  const uint32_t page = free_lists_[static_cast<size_t>(order)];
  TakeFree(page);
  // Split: the first half is used, the second goes to the list of its order.
  while (order > wanted) {
    --order;
    PushFree(page + (1U << order), order);
  }
  pages_[page].order = static_cast<uint8_t>(wanted);
  return memory_ + size_t{page} * kSmallestBlock;
}

void BufferPool::Shrink(char* block, size_t bytes) {
  const uint32_t page = PageOf(block);
  const int wanted = OrderOf(bytes);
  while (pages_[page].order > wanted) {
    const int half = --pages_[page].order;
    PushFree(page + (1U << half), half);
  }
}

void BufferPool::Free(char* block) {
  uint32_t page = PageOf(block);
  int order = pages_[page].order;
  assert(!pages_[page].free);
  // Join with the buddy as long as that is free and whole.
  while (order < kOrders - 1) {
    const uint32_t buddy = page ^ (1U << order);
    if (!pages_[buddy].free || pages_[buddy].order != order) break;
    TakeFree(buddy);
    page = std::min(page, buddy);
    ++order;
  }
  PushFree(page, order);
}

}  // namespace lunkeeper
