#include "devices/array/tgt/catalogue.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fail_point.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

constexpr int64_t kSchema = 1;
// Left out of the generations and terms after a restore, beside what the sequence says was lost.
constexpr int64_t kRestoreGap = 1 << 16;

constexpr char kTables[] = R"(
CREATE TABLE IF NOT EXISTS meta(
  only_row INTEGER PRIMARY KEY CHECK(only_row = 1), array TEXT NOT NULL, schema INTEGER NOT NULL,
  sequence INTEGER NOT NULL, generation INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS volumes(
  id TEXT PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL, size INTEGER NOT NULL,
  asked_size INTEGER NOT NULL,
  provisioning INTEGER NOT NULL, durability INTEGER NOT NULL, source_snapshot TEXT NOT NULL,
  source_volume TEXT NOT NULL, serial TEXT NOT NULL, created INTEGER NOT NULL, copying INTEGER NOT NULL,
  UNIQUE(cluster, name)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS volumes_of_cluster ON volumes(cluster, id);
CREATE INDEX IF NOT EXISTS volumes_copying ON volumes(copying) WHERE copying = 1;
CREATE TABLE IF NOT EXISTS snapshots(
  id TEXT PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL, source TEXT NOT NULL, size INTEGER NOT NULL,
  created INTEGER NOT NULL, copying INTEGER NOT NULL, UNIQUE(cluster, name)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS snapshots_of_cluster ON snapshots(cluster, id);
CREATE INDEX IF NOT EXISTS snapshots_of_volume ON snapshots(source, id);
CREATE INDEX IF NOT EXISTS snapshots_copying ON snapshots(copying) WHERE copying = 1;
CREATE TABLE IF NOT EXISTS grants(
  generation INTEGER PRIMARY KEY, cluster TEXT NOT NULL, volume TEXT NOT NULL, node TEXT NOT NULL,
  access INTEGER NOT NULL, owner INTEGER NOT NULL, secret TEXT NOT NULL, releasing INTEGER NOT NULL,
  UNIQUE(volume, node));
CREATE INDEX IF NOT EXISTS grants_of_node ON grants(cluster, node);
CREATE INDEX IF NOT EXISTS grants_releasing ON grants(releasing) WHERE releasing = 1;
CREATE TABLE IF NOT EXISTS fences(
  cluster TEXT NOT NULL, node TEXT NOT NULL, generation INTEGER NOT NULL, term INTEGER NOT NULL,
  PRIMARY KEY(cluster, node)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fenced_volumes(
  cluster TEXT NOT NULL, node TEXT NOT NULL, volume TEXT NOT NULL,
  PRIMARY KEY(cluster, node, volume)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS heartbeat_luns(
  generation INTEGER PRIMARY KEY, cluster TEXT NOT NULL, node TEXT NOT NULL, secret TEXT NOT NULL,
  UNIQUE(cluster, node));
CREATE TABLE IF NOT EXISTS terms(
  cluster TEXT PRIMARY KEY, term INTEGER NOT NULL, holder TEXT NOT NULL) WITHOUT ROWID;
)";

// Room ahead of a file's end, so that releasing and fencing go on when volumes have filled the pool. As much
// as there is.
void Reserve(const std::string& path) {
  constexpr off_t kReserve = 16 << 20;
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (fd) ::fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 0, kReserve);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Catalogue>> Catalogue::Open(const std::string& path,
                                                           const std::string& array) {
  std::unique_ptr<Catalogue> catalogue(new Catalogue);
  // Before SQLite has it open: to close a descriptor of it would drop SQLite's locks.
  Reserve(path);
  const mode_t mask = ::umask(0077);  // it holds the grants' secrets
  auto writer = SqlDatabase::Open(path, SqlDatabase::Mode::kReadWrite);
  absl::Status status = writer.status();
  if (status.ok()) {
    catalogue->writer_ = *std::move(writer);
    status = catalogue->Prepare(array);
  }
  ::umask(mask);
  RETURN_IF_ERROR(status);
  Reserve(path + "-wal");
  const absl::MutexLock lock(&catalogue->read_mu_);
  ASSIGN_OR_RETURN(catalogue->reader_, SqlDatabase::Open(path, SqlDatabase::Mode::kReadOnly));
  return catalogue;
}

absl::Status Catalogue::Prepare(const std::string& array) {
  RETURN_IF_ERROR(writer_->Script("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"));
  RETURN_IF_ERROR(writer_->Script("BEGIN IMMEDIATE"));
  RETURN_IF_ERROR(writer_->Script(kTables));
  RETURN_IF_ERROR(
      writer_->Change("INSERT OR IGNORE INTO meta VALUES(1, ?1, ?2, 0, 0)", {array, kSchema}).status());
  RETURN_IF_ERROR(writer_->Script("COMMIT"));
  std::string owner;
  int64_t schema = 0;
  RETURN_IF_ERROR(writer_->Query("SELECT array, schema, sequence FROM meta", {}, [&](const SqlRow& row) {
    owner = row.Text(0);
    schema = row.Integer(1);
    sequence_ = static_cast<uint64_t>(row.Integer(2));
  }));
  if (owner != array) {
    return absl::FailedPreconditionError(
        absl::StrCat("open catalogue: the pool belongs to array ", owner, ", not to ", array));
  }
  if (schema > kSchema) {
    return absl::FailedPreconditionError(
        absl::StrCat("open catalogue: its schema ", schema, " is newer than this program's ", kSchema));
  }
  return absl::OkStatus();
}

absl::Status Catalogue::SkipTo(uint64_t sequence) {
  const uint64_t lost = sequence > sequence_ ? sequence - sequence_ : 0;
  const int64_t gap = static_cast<int64_t>(lost) + kRestoreGap;
  return Write([&](SqlDatabase& database) -> absl::Status {
    RETURN_IF_ERROR(database.Change("UPDATE terms SET term = term + ?1", {gap}).status());
    RETURN_IF_ERROR(database.Change("UPDATE grants SET releasing = 1", {}).status());
    return database
        .Change("UPDATE meta SET generation = generation + ?1, sequence = sequence + ?2",
                {gap, static_cast<int64_t>(lost)})
        .status();
  });
}

absl::Status Catalogue::Write(const Change& change) {
  Pending mine{.change = &change, .status = absl::OkStatus()};
  std::deque<Pending*> batch;
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
  const absl::Status committed = CommitBatch(batch);
  const absl::MutexLock lock(&queue_mu_);
  for (Pending* pending : batch) {
    if (pending->status.ok()) pending->status = committed;
    pending->done = true;
  }
  leader_ = false;
  return mine.status;
}

absl::Status Catalogue::CommitBatch(const std::deque<Pending*>& batch) {
  absl::Status status = Commit(batch);
  uint64_t sequence = 0;
  if (!status.ok()) writer_->Script("ROLLBACK").IgnoreError();
  writer_->Query("SELECT sequence FROM meta", {}, [&](const SqlRow& row) { sequence = row.Integer(0); })
      .IgnoreError();
  if (sequence > sequence_) sequence_ = sequence;
  return status;
}

absl::Status Catalogue::Commit(const std::deque<Pending*>& batch) {
  RETURN_IF_ERROR(writer_->Script("BEGIN IMMEDIATE"));
  int64_t changes = 0;
  for (Pending* pending : batch) {
    RETURN_IF_ERROR(writer_->Script("SAVEPOINT change"));
    pending->status = (*pending->change)(*writer_);
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

absl::Status Catalogue::Read(const char* sql, SqlValues values,
                             const std::function<void(const SqlRow&)>& each) {
  const absl::MutexLock lock(&read_mu_);
  return reader_->Query(sql, values, each);
}

}  // namespace lunkeeper
