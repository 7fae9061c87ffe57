// A backup by lists of blocks against a comparison byte by byte: snapshots of a file to which everything is
// done that a volume's file can meet, while it is snapshot, too. Few rounds in CI, BLOCK_ROUNDS
// for more, of another BLOCK_SEED. Needs root.
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "devices/array/tgt/pool.h"
#include "devices/array/tgt/pool_blocks.h"
#include "devices/array/tgt/testing/array_fixture.h"

namespace lunkeeper::testing {
namespace {

constexpr uint64_t kBlock = 4096, kMostBytes = 12 << 20;
constexpr uint64_t kHotBlocks = 16;
constexpr int kOperations = 30;
constexpr size_t kMostSnapshots = 7;

int NumberOf(const char* variable, int number) {
  const char* const text = std::getenv(variable);
  if (text != nullptr) REQUIRE(absl::SimpleAtoi(text, &number));
  return number;
}

std::string ContentOf(const PoolImage& image) {
  std::ifstream in(image.path, std::ios::binary);
  std::string content(std::istreambuf_iterator<char>(in), {});
  content.resize(image.size_bytes);
  return content;
}

// A volume's file, its snapshots in the order of their making, and what is done to them.
class Life {
 public:
  explicit Life(unsigned seed) : random_(seed) {
    REQUIRE(::ftruncate(file_.get(), static_cast<off_t>(size_)) == 0);
  }

  void ChangeSource() {
    for (int i = 0; i < kOperations; ++i) ChangeOnce(file_.get(), size_);
    if (Chance(4) && size_ < kMostBytes) Grow();
    if (Chance(15)) Defragment(pool_->VolumePath(VolumeId("v")));
  }
  // While a node writes: the snapshot is of some moment meanwhile.
  void Snapshot() {
    const std::string path = pool_->SnapshotPath({}, SnapshotId(absl::StrCat("s", next_++)));
    std::atomic<bool> over = false;
    const unsigned seed = random_();
    std::thread writer([&] {
      std::mt19937 random(seed);
      while (!over) WriteSome(file_.get(), random() % kHotBlocks, 1, random());
    });
    const bool thick = Chance(12);
    const auto made =
        pool_->CloneImage(pool_->VolumePath(VolumeId("v")), path, size_, Provisioning::kThin, thick);
    over = true;
    writer.join();
    INFO(made);
    REQUIRE(made.ok());
    REQUIRE(pool_->KeepImage(path).ok());
    snapshots_.push_back({path, size_});
  }
  // What happens to snapshots without a change of what they read as, and to clones of them.
  void DisturbSnapshots() {
    if (snapshots_.size() > kMostSnapshots || (snapshots_.size() > 2 && Chance(3))) DeleteOne();
    const PoolImage& any = snapshots_[random_() % snapshots_.size()];
    if (Chance(15)) Defragment(any.path);
    if (Chance(4)) Unshare(any);
    if (Chance(3)) Deduplicate(any, snapshots_[random_() % snapshots_.size()]);
    if (Chance(2)) WriteClone(any);
  }
  void CheckAll() {
    std::vector<std::string> contents;
    for (const PoolImage& image : snapshots_) contents.push_back(ContentOf(image));
    for (size_t i = 0; i < snapshots_.size(); ++i) {
      std::string copy(snapshots_[i].size_bytes, 0);
      Restore(&copy, contents[i],
              [&](uint64_t offset, size_t limit) { return FindData(snapshots_[i], offset, limit); });
      CHECK((copy == contents[i]));
      for (size_t base = 0; base < i; ++base) {
        copy = contents[base];
        copy.resize(snapshots_[i].size_bytes);
        listed_ += Restore(&copy, contents[i], [&](uint64_t offset, size_t limit) {
          return FindChanges(snapshots_[base], snapshots_[i], offset, limit);
        });
        all_ += contents[i].size() / kBlock;
        CHECK((copy == contents[i]));
      }
    }
  }
  // Blocks of all deltas, and of all snapshots that they lead to.
  uint64_t listed() const { return listed_; }
  uint64_t all() const { return all_; }

 private:
  bool Chance(unsigned one_in) { return random_() % one_in == 0; }

  static void WriteSome(int file, uint64_t block, uint64_t blocks, unsigned fill) {
    static thread_local std::string data;
    data.assign(blocks * kBlock, static_cast<char>(fill));
    std::memcpy(data.data(), &fill, sizeof(fill));
    (void)!::pwrite(file, data.data(), data.size(), static_cast<off_t>(block * kBlock));
  }
  static void Allocate(int file, int mode, uint64_t offset, uint64_t length) {
    ::fallocate(file, mode | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(length));
  }
  static void WriteDirectly(int file, uint64_t block, unsigned fill) {
    alignas(kBlock) char page[kBlock];
    std::memset(page, static_cast<int>(fill), sizeof(page));
    const UniqueFd direct(
        ::open(absl::StrCat("/proc/self/fd/", file).c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
    (void)!::pwrite(direct.get(), page, sizeof(page), static_cast<off_t>(block * kBlock));
  }
  void ChangeOnce(int file, uint64_t size) {
    const uint64_t block = random_() % (size / kBlock - 16), blocks = 1 + random_() % (Chance(6) ? 16 : 3);
    const unsigned fill = random_();
    switch (random_() % 12) {
      case 0:
      case 1:
        return Allocate(file, FALLOC_FL_PUNCH_HOLE, block * kBlock, blocks * kBlock);
      case 2:  // leaves extents that are allocated and not written, and so does the next one
        return Allocate(file, FALLOC_FL_ZERO_RANGE, block * kBlock, blocks * kBlock);
      case 3:
        return Allocate(file, 0, block * kBlock, blocks * kBlock);
      case 4:  // within a block
        return Allocate(file, FALLOC_FL_PUNCH_HOLE, block * kBlock + 512, 1024);
      case 5:
        (void)!::pwrite(file, &fill, sizeof(fill), static_cast<off_t>(block * kBlock + fill % 8 * 512));
        return;
      case 6:
        return WriteDirectly(file, block, fill);
      case 7:
        if (Chance(8)) ::fdatasync(file);
        return;
      default:
        WriteSome(file, block, blocks, fill);
    }
  }
  void Grow() {
    size_ += 1 << 20;
    REQUIRE(pool_->GrowImage(pool_->VolumePath(VolumeId("v")), size_, Provisioning::kThin).ok());
  }
  static void Defragment(const std::string& path) {
    (void)!std::system(absl::StrCat("xfs_fsr ", path, " > /dev/null 2>&1").c_str());
  }
  void Unshare(const PoolImage& image) {
    const UniqueFd file(::open(image.path.c_str(), O_RDWR | O_CLOEXEC));
    const uint64_t from = random_() % (image.size_bytes / kBlock) * kBlock;
    ::fallocate(file.get(), FALLOC_FL_UNSHARE_RANGE, static_cast<off_t>(from),
                static_cast<off_t>(std::min<uint64_t>(image.size_bytes - from, 16 * kBlock)));
    ::fsync(file.get());
  }
  void Deduplicate(const PoolImage& from, const PoolImage& to) {
    const UniqueFd source(::open(from.path.c_str(), O_RDWR | O_CLOEXEC));
    const UniqueFd target(::open(to.path.c_str(), O_RDWR | O_CLOEXEC));
    std::vector<uint64_t> space(16);
    auto* const range = reinterpret_cast<file_dedupe_range*>(space.data());
    for (uint64_t at = 0; at + kBlock <= std::min(from.size_bytes, to.size_bytes); at += 4 * kBlock) {
      std::fill(space.begin(), space.end(), 0);
      range->src_offset = at;
      range->src_length = kBlock;
      range->dest_count = 1;
      range->info[0].dest_fd = target.get();
      range->info[0].dest_offset = at;
      ::ioctl(source.get(), FIDEDUPERANGE, range);
    }
  }
  // A volume made from a snapshot, which is written to and deleted: its blocks become free.
  void WriteClone(const PoolImage& from) {
    const std::string path = pool_->VolumePath(VolumeId(absl::StrCat("c", next_++)));
    REQUIRE(pool_->CloneImage(from.path, path, from.size_bytes, Provisioning::kThin, Chance(3)).ok());
    REQUIRE(pool_->KeepImage(path).ok());
    const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    for (int i = 0; i < kOperations; ++i) ChangeOnce(file.get(), from.size_bytes);
    ::fsync(file.get());
    ::unlink(path.c_str());
  }
  void DeleteOne() {
    const auto one = snapshots_.begin() + static_cast<ptrdiff_t>(random_() % snapshots_.size());
    REQUIRE(pool_->MarkDeleted(one->path).ok());
    REQUIRE(pool_->RemoveMarked(one->path).ok());
    snapshots_.erase(one);
  }
  // As a backup does that breaks off again and again, and goes on behind the last range that it has, or
  // within it. How many blocks were listed.
  template <class Find>
  uint64_t Restore(std::string* onto, const std::string& from, const Find& find) {
    std::set<uint64_t> listed;
    uint64_t offset = 0;
    while (offset < from.size()) {
      const auto page = find(offset, 1 + random_() % 40);
      INFO(page.status());
      REQUIRE(page.ok());
      REQUIRE(page->next_offset > offset);
      offset = page->next_offset;
      const bool breaks = Chance(5);
      for (const BlockRange& range : page->ranges) {
        const uint64_t end = range.offset + range.length;
        REQUIRE((range.length > 0 && end <= from.size()));
        onto->replace(range.offset, range.length, from, range.offset, range.length);
        for (uint64_t at = range.offset; at < end; at += kBlock) listed.insert(at / kBlock);
        if (!breaks || !Chance(4)) continue;
        offset = Chance(2) ? end : range.offset + range.length / 2;
        break;
      }
    }
    return listed.size();
  }

  TempDir directory_;
  LoopMount mount_{directory_.path(), "512M"};
  const std::unique_ptr<Pool> pool_ = Pool::Open(mount_.path() + "/pool").value();
  const UniqueFd file_{::open(pool_->VolumePath(VolumeId("v")).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  std::mt19937 random_;
  uint64_t size_ = 4 << 20;
  int next_ = 0;
  std::vector<PoolImage> snapshots_;
  uint64_t listed_ = 0, all_ = 0;
};

TEST_CASE("whatever is done to a volume and its snapshots, no list leaves out what changed") {
  const int rounds = NumberOf("BLOCK_ROUNDS", 5), seed = NumberOf("BLOCK_SEED", 1);
  Life life(static_cast<unsigned>(seed));
  for (int round = 0; round < rounds; ++round) {
    INFO("seed " << seed << ", round " << round);
    life.ChangeSource();
    life.Snapshot();
    life.DisturbSnapshots();
    life.CheckAll();
  }
  CHECK(life.listed() < life.all() * 2 / 3);  // what is listed in vain hides nothing
}

}  // namespace
}  // namespace lunkeeper::testing
