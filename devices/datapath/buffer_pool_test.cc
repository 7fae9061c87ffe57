#include "devices/datapath/buffer_pool.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <vector>

#include "base/units.h"

namespace lunkeeper {
namespace {

TEST_CASE("a pool gives out all of its memory, and then nothing") {
  BufferPool pool(4 * kMiB);
  std::vector<char*> blocks;
  while (char* block = pool.Allocate(4096)) blocks.push_back(block);
  CHECK(blocks.size() == 4 * kMiB / 4096);
  CHECK(pool.free_bytes() == 0);
  CHECK(pool.whole_bytes() == 0);
  for (char* block : blocks) pool.Free(block);
  CHECK(pool.free_bytes() == 4 * kMiB);
}

TEST_CASE("blocks that came back in any order are whole again") {
  BufferPool pool(4 * kMiB);
  std::vector<char*> blocks;
  for (int i = 0; i < 1024; ++i) blocks.push_back(pool.Allocate(4096));
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(7));
  for (char* block : blocks) pool.Free(block);
  for (int i = 0; i < 4; ++i) CHECK(pool.Allocate(kMiB) != nullptr);
}

TEST_CASE("the end of a shrunk block can be given out again") {
  BufferPool pool(kMiB);
  char* block = pool.Allocate(kMiB);
  pool.Shrink(block, 100 << 10);
  CHECK(pool.free_bytes() == kMiB - (128 << 10));
  char* half = pool.Allocate(512 << 10);
  REQUIRE(half != nullptr);
  CHECK(half >= block + (128 << 10));
  pool.Free(block);
  pool.Free(half);
  CHECK(pool.whole_bytes() == kMiB);
}

TEST_CASE("what is allocated from pieces leaves whole blocks whole") {
  BufferPool pool(2 * kMiB);
  CHECK(pool.AllocateFromPieces(4096) == nullptr);
  char* block = pool.Allocate(kMiB);
  pool.Shrink(block, 128 << 10);
  int pieces = 0;
  while (pool.AllocateFromPieces(128 << 10) != nullptr) ++pieces;
  CHECK(pieces == 7);
  CHECK(pool.whole_bytes() == kMiB);
  CHECK(pool.free_bytes() == kMiB);
}

TEST_CASE("blocks never overlap") {
  BufferPool pool(8 * kMiB);
  std::mt19937 random(3);
  struct Held {
    char* data;
    size_t size;
    char stamp;
  };
  std::vector<Held> held;
  for (int round = 0; round < 20000; ++round) {
    const size_t size = size_t{1} << (random() % 21);
    char* data = random() % 2 == 0 ? pool.Allocate(size) : nullptr;
    if (data != nullptr) {
      held.push_back({data, size, static_cast<char>(round)});
      std::memset(data, held.back().stamp, size);
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      const Held last = held.back();
      REQUIRE(last.data[0] == last.stamp);
      REQUIRE(last.data[last.size - 1] == last.stamp);
      pool.Free(last.data);
      held.pop_back();
    }
  }
}

TEST_CASE("200 volumes at depth 32 of 4 KiB fit beside a few requests of 1 MiB") {
  BufferPool pool(64 * kMiB);
  for (int i = 0; i < 200 * 32; ++i) REQUIRE(pool.Allocate(4096) != nullptr);
  for (int i = 0; i < 8; ++i) REQUIRE(pool.Allocate(kMiB) != nullptr);
}

}  // namespace
}  // namespace lunkeeper
