#pragma once
// Reflinks of several files of a pool, in steps, so that only one short step has to be within a write
// barrier:
//
//   MakeFiles  makes `to`.new, empty                       at any time
//   ShareOnce  reflinks as of now, of several moments      at any time
//   ShareMost  the same until little is left               just before the barrier
//   ShareAll   the reflinks                                within the barrier
//   Complete   sizes, space of its own, everything synced  at any time
//
// A reflink takes as long as its file has extents, some 10 µs each. On XFS most of that is done before,
// and ShareAll does again what has changed since; elsewhere ShareAll does all. To find what has changed, XFS
// has to be asked for all extents again, some 3 µs each, and nobody else knows: so files of several 100,000
// extents cannot be cloned within a barrier. For each extent XFS takes the lock of its part of the disk, and
// a folder's files are in one part: ten files at once take four times as long as one after another.
//
// Until Keep() the object owns the new files and deletes them with itself; after a kill the next start does
// (Pool::TidyImages). For one thread; several files are worked on at a time. Failure: as Pool's calls.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "devices/array/tgt/file_extents.h"
#include "devices/array/tgt/pool.h"

namespace lunkeeper {

class PoolClones {
 public:
  // `pool` outlives it.
  static absl::StatusOr<std::unique_ptr<PoolClones>> MakeFiles(const Pool& pool,
                                                               std::vector<PoolClone> clones);
  ~PoolClones();
  PoolClones(const PoolClones&) = delete;
  PoolClones& operator=(const PoolClones&) = delete;

  // To find the places of so many takes XFS about as long as a barrier may last.
  static constexpr size_t kManyPieces = 150000;

  // Once, however much it is.
  absl::Status ShareOnce();
  // Again and again until little has changed meanwhile, or it is not faster than the writers; a few times at
  // most.
  absl::Status ShareMost();
  // Whether a round can become short enough for a barrier at all, however little is written.
  bool CanCatchUp(size_t many_pieces = kManyPieces) const { return CountPieces() <= many_pieces; }
  // UNAVAILABLE: the last round of ShareMost, which ShareAll will repeat, took longer. FAILED_PRECONDITION:
  // so did it, and it always will, since the files are in too many pieces.
  absl::Status CheckLastRound(std::chrono::steady_clock::duration most,
                              size_t many_pieces = kManyPieces) const;
  // UNAVAILABLE: `end` was reached first, and some are not made. A reflink that has begun is not cut short.
  absl::Status ShareAll(std::chrono::steady_clock::time_point end);
  absl::Status Complete();
  // The rows are stored: the files are theirs.
  void Keep() { kept_ = true; }

 private:
  struct File {
    PoolClone clone;
    UniqueFd from, to;
    std::vector<FileExtent> shared = {};  // of `to`, when ShareMost was last done with it
  };

  explicit PoolClones(const Pool& pool) : pool_(pool) {}
  size_t CountPieces() const;
  absl::Status ForEach(const std::function<absl::Status(File&)>& work, size_t at_once);
  static absl::Status FlushOne(const File& file);
  // Without `flush`, of what is dirty the state before.
  static absl::Status ShareChanges(File& file, bool flush);
  static absl::Status ShareRange(const File& file, const FileRange& range);
  static absl::Status CheckTime(const File& file, std::chrono::steady_clock::time_point end);
  absl::Status ShareBeforehand(File& file) ABSL_LOCKS_EXCLUDED(extents_mu_);
  static absl::Status ReadShared(File& file);
  absl::Status ShareOne(File& file, std::chrono::steady_clock::time_point end)
      ABSL_LOCKS_EXCLUDED(extents_mu_);
  static absl::Status CompleteOne(const File& file);

  const Pool& pool_;
  std::vector<File> files_;
  absl::Mutex extents_mu_;                            // held while one file's extents are read and shared
  std::chrono::steady_clock::duration last_round_{};  // of ShareOnce
  bool kept_ = false;
};

}  // namespace lunkeeper
