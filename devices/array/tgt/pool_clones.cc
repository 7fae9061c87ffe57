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
constexpr size_t kAtOnce = 8;
// What has changed in a round that took so long is shared within a barrier in about as little.
constexpr std::chrono::milliseconds kShortRound(50);
constexpr int kMostRounds = 4;

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
absl::Status PoolClones::ForEach(const std::function<absl::Status(File&)>& work) {
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
  std::vector<std::thread> others(std::min(kAtOnce, files_.size()) - 1);
  for (std::thread& other : others) other = std::thread(run);
  run();
  for (std::thread& other : others) other.join();
  return status;
}

absl::Status PoolClones::FlushOne(const File& file) {
  return ::fdatasync(file.from.get()) == 0 ? absl::OkStatus() : FileError("sync", file.clone.from, errno);
}

absl::Status PoolClones::FlushAll() { return ForEach(FlushOne); }

// What has changed since `shared` was read: a block that is still at the same place is still the same.
absl::Status PoolClones::ShareChanges(File& file) {
  struct stat source {};
  if (::fstat(file.from.get(), &source) != 0) return FileError("look at", file.clone.from, errno);
  ASSIGN_OR_RETURN(const std::vector<FileExtent> now, ReadExtents(file.from.get(), file.clone.from));
  for (const FileRange& range : FindDifferences(now, file.shared, static_cast<uint64_t>(source.st_size))) {
    file_clone_range request = {.src_fd = file.from.get(),
                                .src_offset = range.offset,
                                .src_length = range.end - range.offset,
                                .dest_offset = range.offset};
    if (::ioctl(file.to.get(), FICLONERANGE, &request) != 0)
      return FileError("clone to", file.clone.to, errno);
  }
  return absl::OkStatus();
}

absl::Status PoolClones::ShareBeforehand(File& file) {
  return HasStableExtents(file.to.get()) ? ShareChanges(file) : FlushOne(file);
}

absl::Status PoolClones::ReadShared(File& file) {
  if (!HasStableExtents(file.to.get())) return absl::OkStatus();
  ASSIGN_OR_RETURN(file.shared, ReadExtents(file.to.get(), file.clone.to));
  return absl::OkStatus();
}

absl::Status PoolClones::ShareMost() {
  for (int i = 0; i < kMostRounds; ++i) {
    const auto before = last_round_;
    const auto begun = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(ForEach(ShareBeforehand));
    last_round_ = std::chrono::steady_clock::now() - begun;
    RETURN_IF_ERROR(ForEach(ReadShared));
    last_reading_ = std::chrono::steady_clock::now() - begun - last_round_;
    if (HasCaughtUp()) break;
    // Writers that are as fast as this are not caught up with by more of the same.
    if (i > 0 && last_round_ * 4 > before * 3) break;
  }
  return absl::OkStatus();
}

bool PoolClones::HasCaughtUp() const { return last_round_ <= kShortRound; }

// To find what has changed, all places of a source are read, which are as many as its clone's.
bool PoolClones::CanCatchUp(std::chrono::steady_clock::duration most) const { return last_reading_ <= most; }

absl::Status PoolClones::CheckLastRound(std::chrono::steady_clock::duration most, size_t many_pieces) const {
  if (last_round_ <= most) return absl::OkStatus();
  const std::string why = absl::StrCat("pool: finding what has changed of the group's volumes takes ",
                                       absl::FormatDuration(absl::FromChrono(last_round_)),
                                       ", and they must not stand still for more than ",
                                       absl::FormatDuration(absl::FromChrono(most)), "; nothing was made: ");
  const File& worst =
      *std::ranges::max_element(files_, {}, [](const File& file) { return file.shared.size(); });
  // Such a file stays as it is, and to repeat the call is in vain. A disk is not busy for ever.
  if (worst.shared.size() > many_pieces)
    return absl::FailedPreconditionError(absl::StrCat(why, worst.clone.from, " is in ", worst.shared.size(),
                                                      " pieces; copy what is in it to a new volume"));
  return absl::UnavailableError(
      absl::StrCat(why, "the pool's disk is busy; try again when less is written to it"));
}

absl::Status PoolClones::ShareOne(File& file) {
  if (HasStableExtents(file.to.get())) return ShareChanges(file);
  if (::ioctl(file.to.get(), FICLONE, file.from.get()) == 0) return absl::OkStatus();
  return FileError("clone to", file.clone.to, errno);
}

absl::Status PoolClones::ShareAll(std::chrono::steady_clock::time_point end) {
  return ForEach([end](File& file) -> absl::Status {
    if (std::chrono::steady_clock::now() < end) return ShareOne(file);
    return absl::UnavailableError(absl::StrCat(
        "pool: clone to ", file.clone.to,
        ": the time that volumes may stand still is over before all of the group are cloned: the pool's disk "
        "is too busy, or their files are in too many pieces; nothing was made; try again when less is "
        "written "
        "to them"));
  });
}

absl::Status PoolClones::CompleteOne(const File& file) {
  const PoolClone& clone = file.clone;
  RETURN_IF_ERROR(SetSize(file.to.get(), clone.to, clone.size_bytes, Provisioning::kThin));
  if (clone.own_space) RETURN_IF_ERROR(UnshareData(file.to.get(), clone.to));
  return ::fsync(file.to.get()) == 0 ? absl::OkStatus() : FileError("sync", clone.to, errno);
}

absl::Status PoolClones::Complete() {
  RETURN_IF_ERROR(ForEach(CompleteOne));
  // After the files: an entry leads to a whole file, or there is none.
  std::set<std::string> synced;
  for (const File& file : files_) {
    const std::string& to = file.clone.to;
    if (synced.insert(to.substr(0, to.rfind('/'))).second) RETURN_IF_ERROR(SyncDirectoryOf(to));
  }
  return absl::OkStatus();
}

}  // namespace lunkeeper
