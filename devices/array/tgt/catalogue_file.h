#pragma once
// The file behind the catalogue: SQLite in the pool directory (write-ahead log, full sync), and the two ways
// in: changes and reads. catalogue_schema.h has its tables.
//
// Every change is one transaction and raises the sequence; once it returns OK it survives a power cut.
// Changes asked for at the same time share one sync of the disk (group commit). Reads go on meanwhile, on a
// connection of their own, and see the last commit.
// Thread-safe. Failure: RESOURCE_EXHAUSTED the disk is full; INTERNAL SQLite's own errors.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/pool_identity.h"
#include "devices/array/tgt/catalogue_schema.h"
#include "devices/array/tgt/sqlite.h"

namespace lunkeeper {

class CatalogueFile {
 public:
  using Change = std::function<absl::Status(SqlDatabase&)>;
  // Called when the disk is full; true: there is room now that there was not.
  using MakeRoom = std::function<bool()>;

  // Opens or makes the file; an older program's is migrated. FAILED_PRECONDITION: it belongs to an array of
  // another name, or to a newer program, and nothing of it was changed.
  static absl::StatusOr<std::unique_ptr<CatalogueFile>> Open(const std::string& path,
                                                             const std::string& array,
                                                             const MakeRoom& make_room);
  // Leaves everything in the one file, and its log empty.
  ~CatalogueFile();

  // What the secrets are made from by which this array's targets prove themselves; for life.
  const std::string& target_key() const { return target_key_; }
  // Which pool this is, and which copy of it.
  PoolIdentity identity() const { return {.lineage = lineage_, .restored_at = restored_at_}; }
  // The next SkipTo makes a newer copy than this one, if it is one of the same pool.
  void NoteCopy(const PoolIdentity& known);
  // How many changes there have been.
  uint64_t sequence() const { return sequence_; }
  // For a catalogue that is older than what it once was: continues from `sequence`, leaves out every
  // generation and term that could have been given before it, and marks every grant as releasing: a node that
  // holds a grant by this copy may have lost it since, to a node that wrote. It is the newest copy from then
  // on.
  absl::Status SkipTo(uint64_t sequence);

  // Runs `change` in a transaction of its own or together with others, and returns when it is on the disk. A
  // change that fails is rolled back alone. It may run on another caller's thread, and, when the disk was
  // full, twice.
  absl::Status WriteChange(const Change& change) ABSL_LOCKS_EXCLUDED(queue_mu_);
  // Calls `each` for every row.
  absl::Status ReadRows(const char* sql, SqlValues values, const std::function<void(const SqlRow&)>& each)
      ABSL_LOCKS_EXCLUDED(read_mu_);
  // Another file of all of it, as of one moment and with its secrets. Changes and reads go on meanwhile, also
  // if the other file's disk hangs.
  absl::Status CopyTo(const std::string& path) ABSL_LOCKS_EXCLUDED(read_mu_);
  // Several queries; nobody else reads between them.
  absl::Status ReadTogether(const Change& read) ABSL_LOCKS_EXCLUDED(read_mu_);

 private:
  struct PendingChange {
    const Change* change;
    absl::Status status;
    bool done = false;
  };

  CatalogueFile(std::string path, MakeRoom make_room)
      : path_(std::move(path)), make_room_(std::move(make_room)) {}
  // `head`: of the file as it was found.
  absl::Status PrepareTables(const std::string& array, const std::optional<CatalogueHead>& head);
  SqlDatabase& Reader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mu_) { return reader_ ? *reader_ : *writer_; }
  absl::Status CommitBatch(const std::deque<PendingChange*>& batch);
  absl::Status TryCommit(const std::deque<PendingChange*>& batch);
  absl::Status RunTransaction(const std::deque<PendingChange*>& batch);

  const std::string path_;
  const MakeRoom make_room_;
  std::unique_ptr<SqlDatabase> writer_;  // used by the leader of a batch alone
  absl::Mutex queue_mu_;
  std::deque<PendingChange*> queue_ ABSL_GUARDED_BY(queue_mu_);
  bool leader_ ABSL_GUARDED_BY(queue_mu_) = false;
  std::atomic<uint64_t> sequence_{0};
  std::atomic<int64_t> restored_at_{0};
  std::atomic<int64_t> noted_at_{0};  // the newest copy's that was noted
  std::string target_key_, lineage_;  // constant once it is open
  absl::Mutex read_mu_;               // with one connection, also held by the leader
  // None with a file that has one connection: then the writer's is used, one user at a time.
  std::unique_ptr<SqlDatabase> reader_ ABSL_GUARDED_BY(read_mu_);
};

// The next generation, inside a change. Generations are never used again: a target's name carries its
// grant's, so a login to an old target can never end in a new one. Nor is it one whose TargetNumber is that
// of a grant or a heartbeat LUN there is.
absl::StatusOr<int64_t> TakeNextGeneration(SqlDatabase& database);

}  // namespace lunkeeper
