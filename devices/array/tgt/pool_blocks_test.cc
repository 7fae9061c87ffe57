// Lists of blocks, of files on real file systems and of a real array's snapshots. Needs root.
#include "devices/array/tgt/pool_blocks.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "devices/array/testing/block_contract.h"
#include "devices/array/tgt/file_extents.h"
#include "devices/array/tgt/pool.h"
#include "devices/array/tgt/testing/array_fixture.h"

namespace lunkeeper::testing {
namespace {

constexpr uint64_t kBlock = 4096;

void WriteAt(int file, uint64_t block, char fill, uint64_t blocks = 1) {
  const std::string data(blocks * kBlock, fill);
  REQUIRE(::pwrite(file, data.data(), data.size(), static_cast<off_t>(block * kBlock)) ==
          static_cast<ssize_t>(data.size()));
}

void Allocate(int file, int mode, uint64_t block, uint64_t blocks) {
  REQUIRE(::fallocate(file, mode, static_cast<off_t>(block * kBlock), static_cast<off_t>(blocks * kBlock)) ==
          0);
}

// All pages together; checks that each but the last gets on.
template <class Find>
std::vector<BlockRange> AllPages(const Find& find) {
  std::vector<BlockRange> all;
  uint64_t offset = 0, size = 1;
  while (offset < size) {
    const auto page = find(offset);
    INFO(page.status());
    REQUIRE(page.ok());
    REQUIRE(page->next_offset > offset);
    all.insert(all.end(), page->ranges.begin(), page->ranges.end());
    offset = page->next_offset;
    size = page->size_bytes;
  }
  return all;
}

std::vector<BlockRange> ChangesIn(const PoolImage& base, const PoolImage& image, size_t limit = 50) {
  return AllPages([&](uint64_t offset) { return FindChanges(base, image, offset, limit); });
}
std::vector<BlockRange> DataIn(const PoolImage& image) {
  return AllPages([&](uint64_t offset) { return FindData(image, offset, 50); });
}

std::string ContentOf(const PoolImage& image) {
  std::ifstream in(image.path, std::ios::binary);
  std::string content(std::istreambuf_iterator<char>(in), {});
  content.resize(image.size_bytes);
  return content;
}

// What a backup does: `onto` and the listed parts of `from`.
std::string Patched(std::string onto, const std::string& from, const std::vector<BlockRange>& ranges) {
  onto.resize(from.size());
  for (const BlockRange& range : ranges)
    onto.replace(range.offset, range.length, from, range.offset, range.length);
  return onto;
}

uint64_t BytesRead() {
  std::ifstream io("/proc/self/io");
  std::string name;
  uint64_t bytes = 0;
  io >> name >> bytes;
  return bytes;
}

// Files of a pool: one that changes, and reflinks of it.
struct XfsFiles {
  XfsFiles() { REQUIRE(::ftruncate(file.get(), static_cast<off_t>(size)) == 0); }

  void Grow(uint64_t bytes) {
    size += bytes;
    REQUIRE(::ftruncate(file.get(), static_cast<off_t>(size)) == 0);
  }
  PoolImage Snapshot(const std::string& name) {
    const std::string path = pool->SnapshotPath({}, SnapshotId(name));
    REQUIRE(pool->CloneImage(source, path, size, Provisioning::kThin, false) == absl::OkStatus());
    REQUIRE(pool->KeepImage(path) == absl::OkStatus());
    return {path, size};
  }

  TempDir directory;
  LoopMount mount{directory.path(), "1G"};
  const std::unique_ptr<Pool> pool = Pool::Open(mount.path() + "/pool").value();
  const std::string source = pool->VolumePath(VolumeId("v"));
  const UniqueFd file{::open(source.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  uint64_t size = 4 << 20;
};

void ChangeAtRandom(const XfsFiles& files, std::mt19937& random) {
  for (int i = 0; i < 40; ++i) {
    const uint64_t block = random() % (files.size / kBlock - 4), blocks = 1 + random() % 4;
    switch (random() % 6) {
      case 0:
        Allocate(files.file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, block, blocks);
        break;
      case 1:  // leaves extents that are allocated and not written
        Allocate(files.file.get(), FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, block, blocks);
        break;
      case 2:
        Allocate(files.file.get(), FALLOC_FL_KEEP_SIZE, block, blocks);
        break;
      default:
        WriteAt(files.file.get(), block, static_cast<char>('a' + random() % 26), blocks);
    }
  }
}

struct RealArray {
  explicit RealArray(const std::string& mkfs) : mount(directory.path(), "512M", mkfs) {
    REQUIRE(fixture.Open() == absl::OkStatus());
  }
  // Each write as a node makes it, over iSCSI. tgtd punches a hole for a discard.
  BlockWriter Node(Array& array) {
    return {.write = [&](const VolumeId& volume, uint64_t offset) { Write(array, volume, offset); },
            .discard =
                [&](const VolumeId& volume, uint64_t offset) {
                  const std::string path = absl::StrCat(pool, "/volumes/", volume.value());
                  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
                  Allocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset / kBlock, 1);
                }};
  }
  static void Write(Array& array, const VolumeId& volume, uint64_t offset) {
    const NodeId node("a.0000000000000001");
    const auto grant = array.grants().AcquireGrant({.volume = volume, .node = node}, absl::ZeroDuration());
    REQUIRE(grant.status() == absl::OkStatus());
    {
      auto initiator = PlainInitiator::Login(grant->connection);
      REQUIRE(initiator.status() == absl::OkStatus());
      REQUIRE((*initiator)->Write(offset / 512, 'x'));
    }
    REQUIRE(array.grants().ReleaseGrant(volume, node, GrantOwner::kNode, kAnyGeneration).ok());
  }

  TempDir directory;
  LoopMount mount;
  const std::string pool = mount.path() + "/pool";
  ArrayFixture fixture{pool};
};

}  // namespace

TEST_CASE("a real array lists the blocks of its snapshots as promised") {
  RealArray real("mkfs.xfs -q -m reflink=1");
  const auto array = real.fixture.Cluster(), other = real.fixture.Cluster("c2");
  CheckBlockLists(*array, real.Node(*array));
  CheckBlocksOfGrownVolume(*array, real.Node(*array));
  CheckBlockRefusals(*array, *other);
}

TEST_CASE("a pool without reflinks lists what was written, and says that it knows no changes") {
  RealArray real(GENERATE("mkfs.ext4 -q", "mkfs.xfs -q -m reflink=0"));
  const auto array = real.fixture.Cluster();
  const VolumeId volume = MakeBlockVolume(*array, "v");
  const BlockWriter node = real.Node(*array);
  node.write(volume, 2 * kMiBOfBlocks);
  const SnapshotId old = MustSnapshot(*array, "old", volume);
  node.write(volume, 5 * kMiBOfBlocks);
  const SnapshotId now = MustSnapshot(*array, "now", volume);
  CHECK(MiBsOf(*array, {.snapshot = old}) == MiBs{2});
  CHECK(MiBsOf(*array, {.snapshot = now}) == MiBs{2, 5});
  const absl::Status refused = RefusalOf(*array, {.snapshot = now, .base = old});
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("XFS") && Catch::Contains("whole snapshot"));
}

TEST_CASE_METHOD(XfsFiles,
                 "what is not listed as changed is the same, and what is not listed as data is zero") {
  std::mt19937 random(11);
  std::vector<PoolImage> snapshots;
  for (int round = 0; round < 6; ++round) {
    if (round % 3 == 2) Grow(1 << 20);
    ChangeAtRandom(*this, random);
    snapshots.push_back(Snapshot(absl::StrCat("s", round)));
  }
  // A copy of its blocks, as after a defragmentation: listed without need, and no harm is done.
  const UniqueFd moved(::open(snapshots[3].path.c_str(), O_RDWR | O_CLOEXEC));
  Allocate(moved.get(), FALLOC_FL_UNSHARE_RANGE, 0, 512);
  for (const PoolImage& image : snapshots) {
    const std::string content = ContentOf(image);
    CHECK((Patched("", content, DataIn(image)) == content));  // a failure prints no MiB
    for (const PoolImage& base : snapshots) {
      if (base.size_bytes > image.size_bytes) continue;
      CHECK((Patched(ContentOf(base), content, ChangesIn(base, image)) == content));
    }
  }
}

// SEEK_DATA takes cached zeroes for data, and the kernel may drop them before it is asked where those end.
TEST_CASE_METHOD(XfsFiles, "a list of data is right while the kernel caches zeroes and drops them again") {
  Allocate(file.get(), FALLOC_FL_KEEP_SIZE, 0, 512);
  WriteAt(file.get(), 300, 'x');
  REQUIRE(::fsync(file.get()) == 0);
  std::atomic<bool> over = false;
  std::thread reader([&] {
    std::string page(64 * kBlock, 0);
    while (!over) {
      (void)!::pread(file.get(), page.data(), page.size(), 0);
      ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    }
  });
  absl::Status status;
  for (int i = 0; i < 20'000 && status.ok(); ++i) status = FindData({source, size}, 0, 50).status();
  over = true;
  reader.join();
  INFO(status);
  CHECK(status.ok());
  CHECK((Patched("", ContentOf({source, size}), DataIn({source, size})) == ContentOf({source, size})));
}

TEST_CASE_METHOD(XfsFiles, "a change costs what changed: one block of a written volume, or none") {
  WriteAt(file.get(), 0, 'x', 1024);
  const PoolImage old = Snapshot("old"), same = Snapshot("same");
  CHECK(ChangesIn(old, same).empty());
  WriteAt(file.get(), 77, 'y');
  // Zeroes for zeroes: a hole that is allocated now.
  Grow(1 << 20);
  Allocate(file.get(), FALLOC_FL_KEEP_SIZE, 1100, 4);
  const PoolImage now = Snapshot("now");
  CHECK(ChangesIn(old, now) == std::vector<BlockRange>{{77 * kBlock, kBlock}});
  CHECK(DataIn(now) == std::vector<BlockRange>{{0, 4 << 20}});
}

TEST_CASE_METHOD(XfsFiles, "a file in thousands of pieces is listed page by page, and none of it is read") {
  constexpr uint64_t kPieces = 10'000;
  Grow(2 * kPieces * kBlock);
  for (uint64_t i = 0; i < kPieces; ++i) WriteAt(file.get(), 2 * i, 'x');
  const PoolImage old = Snapshot("old");
  std::vector<BlockRange> changed;
  for (const uint64_t piece : {uint64_t{3}, uint64_t{5000}, kPieces - 1}) {
    WriteAt(file.get(), 2 * piece, 'y');
    changed.push_back({2 * piece * kBlock, kBlock});
  }
  const PoolImage now = Snapshot("now");
  const uint64_t before = BytesRead();
  CHECK(ChangesIn(old, now) == changed);
  CHECK(ChangesIn(old, now, 1) == changed);
  CHECK(DataIn(now).size() == kPieces);
  CHECK(BytesRead() - before < 4096);  // the looks at /proc themselves
}

TEST_CASE("extents are the same if they are zero in both, or one place that both share") {
  const auto at = [](uint64_t offset, uint64_t place, bool shared) {
    return FileExtent{
        .offset = offset, .length = 8, .place = place, .known = true, .zero = false, .shared = shared};
  };
  const FileExtent zero{
      .offset = 0, .length = 8, .place = 900, .known = false, .zero = true, .shared = false};
  const auto changed = [](const FileExtent& a, const FileExtent& b) {
    return !FindChanges({a}, {b}, {0, 8}).empty() || !FindChanges({b}, {a}, {0, 8}).empty();
  };
  CHECK_FALSE(changed(at(0, 100, true), at(0, 100, true)));
  CHECK_FALSE(changed(zero, zero));
  CHECK(FindChanges({zero}, {}, {0, 8}).empty());
  CHECK(changed(at(0, 100, true), at(0, 200, true)));
  CHECK(changed(at(0, 100, true), zero));
  // The same place, and not shared: it was another file's before, and both lists are not of one moment.
  CHECK(changed(at(0, 100, true), at(0, 100, false)));
  FileExtent unknown = at(0, 100, true);
  unknown.known = false;
  CHECK(changed(unknown, unknown));
}

}  // namespace lunkeeper::testing
