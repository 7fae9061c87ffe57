// A round finds where source and clone are not the same blocks, and reflinks that, several files at a time.
// ShareMost does so until a round is short, and ShareAll once more, within the barrier. What a clone shares
// is read from the clone itself and only between the rounds: a list of the source's blocks would be older
// than the reflink, and a place that was freed meanwhile may have other data by the next round.
#include "devices/array/tgt/pool_clones.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <set>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "devices/array/tgt/pool_file.h"

namespace lunkeeper {
namespace {

// Files at a time: so the waits for the disk overlap, and syncs share one flush of its cache.
constexpr size_t kFilesAtOnce = 8;
// Whose writers wait now and then: tgtd's threads are few, and one that waits for a file keeps the others'
// I/O too.
constexpr size_t kHeldAtOnce = 4;
// What has changed in a round that took so long is shared within a barrier in about as little.
constexpr std::chrono::milliseconds kShortRound(50);
constexpr int kMostRounds = 6;
// The same flush as before extents are read: of all data, and waited for.
constexpr unsigned kFlushAll =
    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
// 256 blocks at most, some 3 ms.
constexpr uint64_t kShareAtOnce = 1 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<PoolClones>> PoolClones::MakeFiles(const Pool& pool,
                                                                  std::vector<PoolClone> clones) {
  std::unique_ptr<PoolClones> made(new PoolClones(pool));
  for (PoolClone& clone : clones) {
    File& file = made->files_.emplace_back();
    file.clone = std::move(clone);
    ASSIGN_OR_RETURN(file.from, OpenFile(file.clone.from, O_RDONLY));
    ASSIGN_OR_RETURN(file.to, OpenFile(file.clone.to + kNewSuffix, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW));
  }
  return made;
}

PoolClones::~PoolClones() {
  if (kept_) return;
  for (const File& file : files_) pool_.DropNewImage(file.clone.to);
}

// The first error; the others' work is done all the same, unless it has not begun.
absl::Status PoolClones::ForEach(const std::function<absl::Status(File&)>& work, size_t at_once) {
  std::atomic<size_t> next = 0;
  absl::Mutex mu;
  absl::Status status;
  const auto run = [&] {
    for (size_t i = next++; i < files_.size(); i = next++) {
      const absl::Status done = work(files_[i]);
      if (done.ok()) continue;
      next = files_.size();
      const absl::MutexLock lock(&mu);
      status.Update(done);
    }
  };
  std::vector<std::thread> others(std::min(at_once, files_.size()) - 1);
  for (std::thread& other : others) other = std::thread(run);
  run();
  for (std::thread& other : others) other.join();
  return status;
}

absl::Status PoolClones::FlushOne(const File& file) {
  return SyncImageFile(file.from.get(), file.clone.from, ::fdatasync);
}

// What has changed since `shared` was read: a block that is still at the same place is still the same.
// XFS holds a file's writers while it reads extents or reflinks, and writes what is dirty for that. So not
// much is done in one call; and where writers go on, what is dirty has been written before.
absl::Status PoolClones::ShareChanges(File& file, bool flush) {
  struct stat source {};
  if (::fstat(file.from.get(), &source) != 0) return FileError("look at", file.clone.from, errno);
  ASSIGN_OR_RETURN(const std::vector<FileExtent> now, ReadExtents(file.from.get(), file.clone.from, flush));
  for (FileRange range : FindDifferences(now, file.shared, static_cast<uint64_t>(source.st_size))) {
    for (const uint64_t end = range.end; range.offset < end; range.offset = range.end) {
      range.end = std::min(end, range.offset + kShareAtOnce);
      RETURN_IF_ERROR(ShareRange(file, range));
    }
  }
  return absl::OkStatus();
}

absl::Status PoolClones::ShareRange(const File& file, const FileRange& range) {
  file_clone_range request = {.src_fd = file.from.get(),
                              .src_offset = range.offset,
                              .src_length = range.end - range.offset,
                              .dest_offset = range.offset};
  if (::ioctl(file.to.get(), FICLONERANGE, &request) == 0) return absl::OkStatus();
  return FileError("clone to", file.clone.to, errno);
}

absl::Status PoolClones::ShareBeforehand(File& file) {
  RETURN_IF_ERROR(FlushOne(file));
  if (!HasStableExtents(file.to.get())) return absl::OkStatus();
  const absl::MutexLock lock(&extents_mu_);
  return ShareChanges(file, /*flush=*/false);
}

absl::Status PoolClones::ReadShared(File& file) {
  if (!HasStableExtents(file.to.get())) return absl::OkStatus();
  ASSIGN_OR_RETURN(file.shared, ReadExtents(file.to.get(), file.clone.to));
  return absl::OkStatus();
}

absl::Status PoolClones::ShareOnce() {
  const auto begun = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(ForEach([this](File& file) { return ShareBeforehand(file); }, kHeldAtOnce));
  last_round_ = std::chrono::steady_clock::now() - begun;
  return ForEach(ReadShared, 1);
}

absl::Status PoolClones::ShareMost() {
  for (int i = 0; i < kMostRounds; ++i) {
    const auto before = last_round_;
    RETURN_IF_ERROR(ShareOnce());
    if (last_round_ <= kShortRound) break;
    // Writers that are as fast as this are not caught up with by more of the same.
    if (i > 0 && last_round_ * 4 > before * 3) break;
  }
  return absl::OkStatus();
}

// To find what has changed, all places of a source are read, which are as many as its clone's.
size_t PoolClones::CountPieces() const {
  size_t all = 0;
  for (const File& file : files_) all += file.shared.size();
  return all;
}

absl::Status PoolClones::CheckLastRound(std::chrono::steady_clock::duration most, size_t many_pieces) const {
  if (last_round_ <= most) return absl::OkStatus();
  const std::string why = absl::StrCat("pool: finding what has changed of the group's volumes takes ",
                                       absl::FormatDuration(absl::FromChrono(last_round_)),
                                       ", and they must not stand still for more than ",
                                       absl::FormatDuration(absl::FromChrono(most)), "; nothing was made: ");
  const File& worst =
      *std::ranges::max_element(files_, {}, [](const File& file) { return file.shared.size(); });
  // Such files stay as they are, and to repeat the call is in vain. A disk is not busy for ever.
  if (CountPieces() > many_pieces)
    return absl::FailedPreconditionError(absl::StrCat(why, "they are in ", CountPieces(), " pieces, ",
                                                      worst.shared.size(), " of them in ", worst.clone.from,
                                                      "; copy what is in it to a new volume"));
  return absl::UnavailableError(
      absl::StrCat(why, "the pool's disk is busy; try again when less is written to it"));
}

absl::Status PoolClones::ShareOne(File& file, std::chrono::steady_clock::time_point end) {
  if (!HasStableExtents(file.to.get())) {
    RETURN_IF_ERROR(CheckTime(file, end));
    if (::ioctl(file.to.get(), FICLONE, file.from.get()) == 0) return absl::OkStatus();
    return FileError("clone to", file.clone.to, errno);
  }
  // Here, so that the files' waits for the disk overlap; ShareChanges then finds nothing dirty.
  RETURN_IF_ERROR(SyncImageFile(file.from.get(), file.clone.from,
                                [](int fd) { return ::sync_file_range(fd, 0, 0, kFlushAll); }));
  const absl::MutexLock lock(&extents_mu_);
  RETURN_IF_ERROR(CheckTime(file, end));
  return ShareChanges(file, /*flush=*/true);
}

absl::Status PoolClones::CheckTime(const File& file, std::chrono::steady_clock::time_point end) {
  if (std::chrono::steady_clock::now() < end) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "pool: clone to ", file.clone.to,
      ": the time that volumes may stand still is over before all of the group are cloned: the pool's disk ",
      "is too busy, or their files are in too many pieces; nothing was made; try again when less is written ",
      "to them"));
}

absl::Status PoolClones::ShareAll(std::chrono::steady_clock::time_point end) {
  return ForEach([this, end](File& file) { return ShareOne(file, end); }, kFilesAtOnce);
}

absl::Status PoolClones::CompleteOne(const File& file) {
  const PoolClone& clone = file.clone;
  RETURN_IF_ERROR(SetSize(file.to.get(), clone.to, clone.size_bytes, Provisioning::kThin));
  if (clone.own_space) {
    ASSIGN_OR_RETURN(const uint64_t shared, MeasureFile(file.to.get(), clone.to));
    RETURN_IF_ERROR(UnshareData(file.to.get(), clone.to, shared));
  }
  return ::fsync(file.to.get()) == 0 ? absl::OkStatus() : FileError("sync", clone.to, errno);
}

absl::Status PoolClones::Complete() {
  RETURN_IF_ERROR(ForEach(CompleteOne, kFilesAtOnce));
  // After the files: an entry leads to a whole file, or there is none.
  std::set<std::string> synced;
  for (const File& file : files_) {
    const std::string& to = file.clone.to;
    if (synced.insert(to.substr(0, to.rfind('/'))).second) RETURN_IF_ERROR(SyncDirectoryOf(to));
  }
  return absl::OkStatus();
}

}  // namespace lunkeeper
