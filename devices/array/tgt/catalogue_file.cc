// Opening the catalogue, and the group commit.
//
// Group commit: each caller of WriteChange queues its change. The first one that finds no leader becomes the
// leader, takes the whole queue as its batch, runs every change in one transaction (each in a savepoint of
// its own) and commits once. Callers that arrive meanwhile
// wait and form the next batch. So a hundred grants that are released at once share one sync of the disk.
//
// A process that is killed before COMMIT has changed nothing: SQLite rolls the write-ahead log back at the
// next open. Killed after it, the change is there and the caller never heard: so every call can be repeated.
#include "devices/array/tgt/catalogue_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/fail_point.h"
#include "base/hmac.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "devices/array/tgt/pool_file.h"
#include "devices/array/tgt/target_number.h"

namespace lunkeeper {
namespace {

// Added to the generations and terms after a restore, beside what the sequence says was lost.
constexpr int64_t kRestoreGap = 1 << 16;

// Allocates room for the log, so that releasing and fencing go on when volumes have filled the pool: each
// change goes to the log, and later over a page of the file. With less room the array still serves, until the
// disk is full.
void ReserveLog(const std::string& path) {
  constexpr off_t kReserve = 16 << 20;
  const UniqueFd fd(::open((path + "-wal").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (fd && ::fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 0, kReserve) == 0) return;
  LogWarn("array", "no room is reserved for the catalogue's log",
          {{"catalogue", path}, {"error", std::strerror(errno)}});
}

// Room for the file itself: in a full pool a checkpoint that lacks one page does nothing, and the log grows
// until nothing can be changed.
constexpr int kStep = 4 << 20;

// Of the whole process: nothing else makes files while a catalogue is opened.
class UmaskGuard {
 public:
  explicit UmaskGuard(mode_t mask) : before_(::umask(mask)) {}
  ~UmaskGuard() { ::umask(before_); }
  UmaskGuard(const UmaskGuard&) = delete;
  UmaskGuard& operator=(const UmaskGuard&) = delete;

 private:
  const mode_t before_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CatalogueFile>> CatalogueFile::Open(const std::string& path,
                                                                   const std::string& array,
                                                                   const MakeRoom& make_room) {
  std::unique_ptr<CatalogueFile> catalogue(new CatalogueFile(path, make_room));
  // The file and its log hold the grants' secrets. SQLite makes the log itself, later and with the mode of
  // the file.
  const UmaskGuard private_files(0077);
  ASSIGN_OR_RETURN(auto writer, SqlDatabase::Open(path, SqlDatabase::Mode::kReadWrite));
  ASSIGN_OR_RETURN(const std::optional<CatalogueHead> head, ReadHead(*writer));
  if (head) RETURN_IF_ERROR(CheckHead(path, *head, array));
  catalogue->writer_ = std::move(writer);
  RETURN_IF_ERROR(catalogue->PrepareTables(array, head));
  if (SqlDatabase::IsUri(path)) return catalogue;
  catalogue->writer_->GrowInSteps(kStep);  // not sooner: a file of zeroes is no database
  ReserveLog(path);
  const absl::MutexLock lock(&catalogue->read_mu_);
  ASSIGN_OR_RETURN(catalogue->reader_, SqlDatabase::Open(path, SqlDatabase::Mode::kReadOnly));
  return catalogue;
}

// An empty log does no harm beside another copy of the file. Its room is reserved again at once: the next
// start needs it, and on a full pool others would take it.
CatalogueFile::~CatalogueFile() {
  if (writer_ == nullptr) return;
  {
    const absl::MutexLock lock(&read_mu_);
    reader_.reset();
  }
  const absl::Status moved = writer_->Script("PRAGMA wal_checkpoint(TRUNCATE)");
  if (!moved.ok()) LogWarn("array", std::string(moved.message()));
  if (!SqlDatabase::IsUri(path_)) ReserveLog(path_);
}

absl::Status CatalogueFile::PrepareTables(const std::string& array,
                                          const std::optional<CatalogueHead>& head) {
  RETURN_IF_ERROR(writer_->Script("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"));
  RETURN_IF_ERROR(head ? MigrateTables(*writer_, path_, *head) : CreateTables(*writer_, array));
  constexpr char kMeta[] = "SELECT sequence, target_key, restored_at FROM meta";
  return writer_->Query(kMeta, {}, [&](const SqlRow& row) {
    sequence_ = static_cast<uint64_t>(row.Integer(0));
    target_key_ = row.Text(1);
    lineage_ = absl::BytesToHexString(HmacSha256(target_key_, "lineage").substr(0, 8));
    restored_at_ = row.Integer(2);
  });
}

// A copy of the next century is somebody's invention, and there has to be a number above it.
void CatalogueFile::NoteCopy(const PoolIdentity& known) {
  constexpr int64_t kLast = int64_t{1} << 62;
  if (known.lineage != lineage_ || known.restored_at > kLast) return;
  int64_t before = noted_at_;
  while (before < known.restored_at && !noted_at_.compare_exchange_weak(before, known.restored_at)) {
  }
}

absl::Status CatalogueFile::SkipTo(uint64_t sequence) {
  // Each lost change may have given out one generation, one term and one version of a volume's limits, which
  // nodes may still know, so all of them skip as many; the margin covers
  // what this reasoning may have missed, and numbers are cheap: there are 2^31 of tgtd's targets.
  const uint64_t lost = sequence > sequence_ ? sequence - sequence_ : 0;
  const int64_t gap = static_cast<int64_t>(lost) + kRestoreGap;
  // Also where this host's clock is behind that of the host which accepted the last one.
  const int64_t now = std::max({absl::GetCurrentTimeNanos(), restored_at_ + 1, noted_at_ + 1});
  const Change skip = [&](SqlDatabase& database) -> absl::Status {
    RETURN_IF_ERROR(database.Change("UPDATE terms SET term = term + ?1", {gap}).status());
    RETURN_IF_ERROR(
        database.Change("UPDATE volumes SET limits_version = limits_version + ?1", {gap}).status());
    RETURN_IF_ERROR(database.Change("UPDATE grants SET releasing = 1", {}).status());
    return database
        .Change("UPDATE meta SET generation = generation + ?1, sequence = sequence + ?2, restored_at = ?3",
                {gap, static_cast<int64_t>(lost), now})
        .status();
  };
  RETURN_IF_ERROR(WriteChange(skip));
  restored_at_ = now;
  return absl::OkStatus();
}

absl::Status CatalogueFile::WriteChange(const Change& change) {
  PendingChange mine{.change = &change, .status = absl::OkStatus()};
  std::deque<PendingChange*> batch;
  {
    const absl::MutexLock lock(&queue_mu_);
    queue_.push_back(&mine);
    const auto my_turn = [this, &mine]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue_mu_) { return mine.done || !leader_; };
    queue_mu_.Await(absl::Condition(&my_turn));
    if (mine.done) return mine.status;
    leader_ = true;
    batch.swap(queue_);
  }
  // Outside the lock: the next callers queue up meanwhile.
  const absl::Status committed = CommitBatch(batch);
  const absl::MutexLock lock(&queue_mu_);
  for (PendingChange* pending : batch) {
    if (pending->status.ok()) pending->status = committed;
    pending->done = true;
  }
  leader_ = false;
  return mine.status;
}

absl::Status CatalogueFile::CommitBatch(const std::deque<PendingChange*>& batch) {
  std::optional<absl::MutexLock> alone;
  if (SqlDatabase::IsUri(path_)) alone.emplace(&read_mu_);
  absl::Status status = TryCommit(batch);
  if (IsDiskFull(status) && make_room_ && make_room_()) status = TryCommit(batch);
  return status;
}

absl::Status CatalogueFile::TryCommit(const std::deque<PendingChange*>& batch) {
  absl::Status status = RunTransaction(batch);
  uint64_t sequence = 0;
  if (!status.ok()) writer_->Script("ROLLBACK").IgnoreError();
  // Read back instead of counted: after an error of COMMIT nobody knows whether the batch is in the file.
  writer_->Query("SELECT sequence FROM meta", {}, [&](const SqlRow& row) { sequence = row.Integer(0); })
      .IgnoreError();
  if (sequence > sequence_) sequence_ = sequence;
  return status;
}

absl::Status CatalogueFile::RunTransaction(const std::deque<PendingChange*>& batch) {
  RETURN_IF_ERROR(writer_->Script("BEGIN IMMEDIATE"));
  int64_t changes = 0;
  for (PendingChange* pending : batch) {
    // A refused change must leave nothing behind and must not take the others of the batch with it.
    RETURN_IF_ERROR(writer_->Script("SAVEPOINT change"));
    pending->status = (*pending->change)(*writer_);
    // SQLite may have rolled everything back, and the others of the batch would find no room either.
    if (IsDiskFull(pending->status)) return pending->status;
    changes += pending->status.ok() ? 1 : 0;
    RETURN_IF_ERROR(
        writer_->Script(pending->status.ok() ? "RELEASE change" : "ROLLBACK TO change; RELEASE change"));
  }
  if (changes > 0) {
    RETURN_IF_ERROR(writer_->Change("UPDATE meta SET sequence = sequence + ?1", {changes}).status());
  }
  RETURN_IF_ERROR(writer_->Script("COMMIT"));
  FAIL_POINT("array.catalogue.committed");
  return absl::OkStatus();
}

absl::Status CatalogueFile::ReadRows(const char* sql, SqlValues values,
                                     const std::function<void(const SqlRow&)>& each) {
  const absl::MutexLock lock(&read_mu_);
  return Reader().Query(sql, values, each);
}

// Through memory: the copy may be on a disk that is slow or hangs, and who fences a node reads here too.
absl::Status CatalogueFile::CopyTo(const std::string& path) {
  std::unique_ptr<SqlDatabase> copy;
  {
    const absl::MutexLock lock(&read_mu_);
    ASSIGN_OR_RETURN(copy, Reader().CopyToMemory());
  }
  // SQLite would make it for everybody to read.
  RETURN_IF_ERROR(OpenFile(path, O_RDWR | O_CREAT | O_NOFOLLOW).status());
  return copy->CopyTo(path);
}

absl::Status CatalogueFile::ReadTogether(const Change& read) {
  const absl::MutexLock lock(&read_mu_);
  return read(Reader());
}

namespace {

absl::StatusOr<bool> IsNumberInUse(SqlDatabase& database, int64_t generation) {
  constexpr auto kNumbers = static_cast<int64_t>(kTargetNumbers);
  if (generation <= kNumbers) return false;  // as for the first centuries
  bool in_use = false;
  RETURN_IF_ERROR(
      database.Query("SELECT generation FROM grants WHERE (?1 - generation) % ?2 = 0 "
                     "UNION ALL SELECT generation FROM heartbeat_luns WHERE (?1 - generation) % ?2 = 0",
                     {generation, kNumbers}, [&](const SqlRow&) { in_use = true; }));
  return in_use;
}

}  // namespace

absl::StatusOr<int64_t> TakeNextGeneration(SqlDatabase& database) {
  int64_t generation = 0;
  int64_t highest_in_use = 0;
  bool in_use = true;
  while (in_use) {
    RETURN_IF_ERROR(database.Change("UPDATE meta SET generation = generation + 1", {}).status());
    RETURN_IF_ERROR(database.Query("SELECT generation FROM meta", {},
                                   [&](const SqlRow& row) { generation = row.Integer(0); }));
    ASSIGN_OR_RETURN(in_use, IsNumberInUse(database, generation));
  }
  // Both are primary keys, so this reads the last entry of each and no more.
  RETURN_IF_ERROR(
      database.Query("SELECT MAX(IFNULL((SELECT MAX(generation) FROM grants), 0), "
                     "IFNULL((SELECT MAX(generation) FROM heartbeat_luns), 0))",
                     {}, [&](const SqlRow& row) { highest_in_use = row.Integer(0); }));
  LK_CHECK(generation > highest_in_use, "a generation is never used again");
  return generation;
}

}  // namespace lunkeeper
