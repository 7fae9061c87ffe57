#pragma once
// What SnapshotBlocks promises, asked of any array: the same for the one in memory, the one over the network
// and the real one. Each function makes volumes of its own, leaves nothing, and uses one thread.

#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "devices/array/array.h"

namespace lunkeeper::testing {

// As a node does: writes to a volume at this offset, all or a part of the 4 KiB there, or discards them.
struct BlockWriter {
  std::function<void(const VolumeId&, uint64_t offset)> write, discard;
  uint64_t unit = 1 << 20;  // what the array tells apart
};

inline constexpr uint64_t kMiBOfBlocks = 1 << 20;
using MiBs = std::set<uint64_t>;

inline VolumeId MakeBlockVolume(Array& array, const std::string& name, uint64_t unit = kMiBOfBlocks) {
  VolumeSpec spec;
  spec.name = name;
  spec.size_bytes = 8 * unit;
  return array.volumes().CreateVolume(spec).value().id;
}

// Later than every snapshot before it.
inline SnapshotId MustSnapshot(Array& array, const std::string& name, const VolumeId& source) {
  absl::SleepFor(absl::Milliseconds(1));
  const auto made = array.volumes().CreateSnapshot(name, source);
  REQUIRE(made.ok());
  REQUIRE(made->ready);
  return made->id;
}

inline absl::Status RefusalOf(Array& array, const BlockQuery& query) {
  return array.blocks().ListBlocks(query).status();
}
// All ranges, page by page; checks what every page promises.
inline std::vector<BlockRange> AllBlocks(Array& array, BlockQuery query) {
  std::vector<BlockRange> all;
  uint64_t size = query.offset + 1;
  for (int pages = 0; query.offset < size; ++pages) {
    REQUIRE(pages < 10'000);
    const auto page = array.blocks().ListBlocks(query);
    REQUIRE(page.ok());
    size = page->size_bytes;
    CHECK((query.limit == 0 || page->ranges.size() <= query.limit));
    uint64_t before = query.offset;
    for (const BlockRange& range : page->ranges) {
      CHECK(range.length > 0);
      CHECK(range.offset >= before);
      before = range.offset + range.length;
      all.push_back(range);
    }
    CHECK(before <= page->next_offset);
    CHECK(page->next_offset <= size);
    query.offset = page->next_offset;
  }
  return all;
}

// Which MiB, or other units, of the volume the list names.
inline std::set<uint64_t> MiBsOf(Array& array, const BlockQuery& query, uint64_t unit = kMiBOfBlocks) {
  std::set<uint64_t> found;
  for (const BlockRange& range : AllBlocks(array, query)) {
    const uint64_t end = range.offset + range.length;
    for (uint64_t at = range.offset / unit; at * unit < end; ++at) found.insert(at);
  }
  return found;
}

// What was written, what changed, from wherever the caller begins and in however large pages.
inline void CheckBlockLists(Array& array, const BlockWriter& node) {
  const auto mibs = [&](const BlockQuery& query) { return MiBsOf(array, query, node.unit); };
  const VolumeId volume = MakeBlockVolume(array, "v", node.unit);
  const SnapshotId empty = MustSnapshot(array, "empty", volume);
  for (const uint64_t at : {1, 4, 5}) node.write(volume, at * node.unit);
  const SnapshotId old = MustSnapshot(array, "old", volume);
  for (const uint64_t at : {3, 5}) node.write(volume, at * node.unit);
  node.discard(volume, 4 * node.unit);
  const SnapshotId now = MustSnapshot(array, "now", volume);
  node.write(volume, 7 * node.unit);
  CHECK(AllBlocks(array, {.snapshot = empty}).empty());
  CHECK(mibs({.snapshot = old}) == MiBs{1, 4, 5});
  CHECK(mibs({.snapshot = now}) == MiBs{1, 3, 5});
  CHECK(mibs({.snapshot = old, .base = empty}) == MiBs{1, 4, 5});
  // Also what reads as zero now and did not before.
  CHECK(mibs({.snapshot = now, .base = old}) == MiBs{3, 4, 5});
  for (const size_t limit : {1, 2}) {
    CHECK(mibs({.snapshot = now, .base = {}, .offset = 0, .limit = limit}) == MiBs{1, 3, 5});
    CHECK(mibs({.snapshot = now, .base = old, .offset = 0, .limit = limit}) == MiBs{3, 4, 5});
  }
  for (const SnapshotId& base : {SnapshotId(), empty}) {
    const uint64_t within = 3 * node.unit + 1000;
    const auto rest = AllBlocks(array, {.snapshot = now, .base = base, .offset = within});
    REQUIRE_FALSE(rest.empty());
    CHECK(rest.front().offset == within);
    CHECK(mibs({.snapshot = now, .base = base, .offset = 4 * node.unit}) == MiBs{5});
    CHECK(AllBlocks(array, {.snapshot = now, .base = base, .offset = 8 * node.unit}).empty());
  }
  for (const SnapshotId& each : {empty, old, now}) CHECK(array.volumes().DeleteSnapshot(each).ok());
  CHECK(array.volumes().DeleteVolume(volume).ok());
}

inline void CheckBlocksOfGrownVolume(Array& array, const BlockWriter& node) {
  const VolumeId volume = MakeBlockVolume(array, "v", node.unit);
  node.write(volume, 1 * node.unit);
  const SnapshotId old = MustSnapshot(array, "old", volume);
  REQUIRE(array.volumes().ExpandVolume(volume, 16 * node.unit).ok());
  node.write(volume, 12 * node.unit);
  const SnapshotId now = MustSnapshot(array, "now", volume);
  CHECK(array.blocks().ListBlocks({.snapshot = old})->size_bytes == 8 * node.unit);
  CHECK(array.blocks().ListBlocks({.snapshot = now, .base = old})->size_bytes == 16 * node.unit);
  CHECK(MiBsOf(array, {.snapshot = now, .base = old}, node.unit) == MiBs{12});
  CHECK(MiBsOf(array, {.snapshot = now}, node.unit) == MiBs{1, 12});
  for (const SnapshotId& each : {old, now}) CHECK(array.volumes().DeleteSnapshot(each).ok());
  CHECK(array.volumes().DeleteVolume(volume).ok());
}

// What cannot be answered is refused, with the specification's codes.
inline void CheckBlockRefusals(Array& array, Array& other_cluster) {
  const VolumeId a = MakeBlockVolume(array, "a"), b = MakeBlockVolume(array, "b");
  const SnapshotId old = MustSnapshot(array, "old", a), now = MustSnapshot(array, "now", a);
  const SnapshotId of_b = MustSnapshot(array, "b", b);
  const SnapshotId absent(old.value().substr(0, old.value().size() - 4) + "ffff");
  CHECK(absl::IsNotFound(RefusalOf(array, {.snapshot = absent})));
  CHECK(absl::IsNotFound(RefusalOf(array, {.snapshot = now, .base = absent})));
  CHECK(absl::IsNotFound(RefusalOf(array, {.snapshot = absent, .base = old})));
  CHECK(absl::IsInvalidArgument(RefusalOf(array, {.snapshot = of_b, .base = old})));
  CHECK(absl::IsInvalidArgument(RefusalOf(array, {.snapshot = old, .base = now})));
  CHECK(absl::IsInvalidArgument(RefusalOf(array, {.snapshot = now, .base = now})));
  const uint64_t behind = 8 * kMiBOfBlocks + 1;
  CHECK(absl::IsOutOfRange(RefusalOf(array, {.snapshot = now, .base = {}, .offset = behind})));
  CHECK(absl::IsOutOfRange(RefusalOf(array, {.snapshot = now, .base = old, .offset = behind})));
  CHECK(absl::IsNotFound(RefusalOf(other_cluster, {.snapshot = now})));
  CHECK(absl::IsNotFound(RefusalOf(other_cluster, {.snapshot = now, .base = old})));
  // Deleted between two pages.
  CHECK(array.volumes().DeleteSnapshot(old).ok());
  CHECK(absl::IsNotFound(RefusalOf(array, {.snapshot = now, .base = old})));
  for (const SnapshotId& each : {now, of_b}) CHECK(array.volumes().DeleteSnapshot(each).ok());
  for (const VolumeId& each : {a, b}) CHECK(array.volumes().DeleteVolume(each).ok());
}

}  // namespace lunkeeper::testing
