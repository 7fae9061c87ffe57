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

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/fail_point.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

constexpr int64_t kSchema = 1;
// Added to the generations and terms after a restore, beside what the sequence says was lost.
constexpr int64_t kRestoreGap = 1 << 16;

// Times are nanoseconds since 1970, sizes are bytes, flags are 0 or 1, enumerations the numbers of their C++
// values. Texts are never NULL: none is ''.
constexpr char kTables[] = R"(
-- One row. `array`: the name of the array this pool belongs to, for life. `schema`: kSchema of the program
-- that made the file. `sequence`: how many changes there have been. `generation`: the last one given out;
-- grants, fences and heartbeat LUNs share this counter, and it never falls.
CREATE TABLE IF NOT EXISTS meta(
  only_row INTEGER PRIMARY KEY CHECK(only_row = 1), array TEXT NOT NULL, schema INTEGER NOT NULL,
  sequence INTEGER NOT NULL, generation INTEGER NOT NULL);

-- A volume; its data are in the pool's file of the same id. `name` is what the orchestrator calls it.
-- `asked_size` is the size that it was made with: repeating that call must find it, also after it has grown.
-- `copying`: its source is being copied without a reflink; until then it is in no list and nobody may use it.
CREATE TABLE IF NOT EXISTS volumes(
  id TEXT PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL, size INTEGER NOT NULL,
  asked_size INTEGER NOT NULL,
  provisioning INTEGER NOT NULL, durability INTEGER NOT NULL, source_snapshot TEXT NOT NULL,
  source_volume TEXT NOT NULL, serial TEXT NOT NULL, created INTEGER NOT NULL, copying INTEGER NOT NULL,
  UNIQUE(cluster, name)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS volumes_of_cluster ON volumes(cluster, id);
CREATE INDEX IF NOT EXISTS volumes_copying ON volumes(copying) WHERE copying = 1;

-- A snapshot; its data are in a file of its own. `source` may have been deleted since.
CREATE TABLE IF NOT EXISTS snapshots(
  id TEXT PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL, source TEXT NOT NULL, size INTEGER NOT NULL,
  created INTEGER NOT NULL, copying INTEGER NOT NULL, UNIQUE(cluster, name)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS snapshots_of_cluster ON snapshots(cluster, id);
CREATE INDEX IF NOT EXISTS snapshots_of_volume ON snapshots(source, id);
CREATE INDEX IF NOT EXISTS snapshots_copying ON snapshots(copying) WHERE copying = 1;

-- A grant: the right of `node` to use `volume`, and the target that enforces it. A node has at most one of a
-- volume. `secret` is its CHAP secret. `releasing`: its target is being drained and never opens again; the
-- row goes when the target is gone.
CREATE TABLE IF NOT EXISTS grants(
  generation INTEGER PRIMARY KEY, cluster TEXT NOT NULL, volume TEXT NOT NULL, node TEXT NOT NULL,
  access INTEGER NOT NULL, owner INTEGER NOT NULL, secret TEXT NOT NULL, releasing INTEGER NOT NULL,
  UNIQUE(volume, node));
CREATE INDEX IF NOT EXISTS grants_of_node ON grants(cluster, node);
CREATE INDEX IF NOT EXISTS grants_releasing ON grants(releasing) WHERE releasing = 1;

-- A fence in force: `node` gets no grant. `generation` names this fence, so that a late unfence of an earlier
-- one does not lift it. `term`: of the leader that asked for it last.
CREATE TABLE IF NOT EXISTS fences(
  cluster TEXT NOT NULL, node TEXT NOT NULL, generation INTEGER NOT NULL, term INTEGER NOT NULL,
  PRIMARY KEY(cluster, node)) WITHOUT ROWID;
-- The volumes that the fence has taken from the node. They stay here after their grants are gone: the fence
-- notice on the node's heartbeat LUN lists them.
CREATE TABLE IF NOT EXISTS fenced_volumes(
  cluster TEXT NOT NULL, node TEXT NOT NULL, volume TEXT NOT NULL,
  PRIMARY KEY(cluster, node, volume)) WITHOUT ROWID;

-- A node's heartbeat LUN. Its generation numbers its target and its file, as a grant's does.
CREATE TABLE IF NOT EXISTS heartbeat_luns(
  generation INTEGER PRIMARY KEY, cluster TEXT NOT NULL, node TEXT NOT NULL, secret TEXT NOT NULL,
  UNIQUE(cluster, node));

-- The newest term of each cluster, and who began it. It never falls; an older one is refused.
CREATE TABLE IF NOT EXISTS terms(
  cluster TEXT PRIMARY KEY, term INTEGER NOT NULL, holder TEXT NOT NULL) WITHOUT ROWID;
)";

// Allocates room beyond a file's end, so that releasing and fencing go on when volumes have filled the pool.
// A failure is no error: with less room the array still serves, until the disk is full.
void ReserveRoom(const std::string& path) {
  constexpr off_t kReserve = 16 << 20;
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (fd) ::fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 0, kReserve);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CatalogueFile>> CatalogueFile::Open(const std::string& path,
                                                                   const std::string& array) {
  std::unique_ptr<CatalogueFile> catalogue(new CatalogueFile);
  // Before SQLite opens it: POSIX locks belong to the process, and closing any descriptor of a file drops all
  // of them, so SQLite's would be gone (sqlite.org/howtocorrupt.html, section 2.2).
  ReserveRoom(path);
  // The file, its log and its index hold the grants' secrets. SQLite makes the other two itself, later and
  // with the mode of the first.
  const mode_t mask = ::umask(0077);
  auto writer = SqlDatabase::Open(path, SqlDatabase::Mode::kReadWrite);
  absl::Status status = writer.status();
  if (status.ok()) {
    catalogue->writer_ = *std::move(writer);
    status = catalogue->PrepareTables(array);
  }
  ::umask(mask);
  RETURN_IF_ERROR(status);
  ReserveRoom(path + "-wal");
  const absl::MutexLock lock(&catalogue->read_mu_);
  ASSIGN_OR_RETURN(catalogue->reader_, SqlDatabase::Open(path, SqlDatabase::Mode::kReadOnly));
  return catalogue;
}

absl::Status CatalogueFile::PrepareTables(const std::string& array) {
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
  // Serving another array's pool would put this array's name into ids and targets of volumes that have
  // others.
  if (owner != array) {
    return absl::FailedPreconditionError(
        absl::StrCat("open catalogue: the pool belongs to array ", owner, ", not to ", array));
  }
  // A newer program may keep rules in tables that this one does not know, and would break them.
  if (schema > kSchema) {
    return absl::FailedPreconditionError(
        absl::StrCat("open catalogue: its schema ", schema, " is newer than this program's ", kSchema));
  }
  return absl::OkStatus();
}

absl::Status CatalogueFile::SkipTo(uint64_t sequence) {
  // Each lost change may have given out one generation and one term, so both skip as many; the margin covers
  // what this reasoning may have missed, and numbers are cheap: there are 2^31 of tgtd's targets.
  const uint64_t lost = sequence > sequence_ ? sequence - sequence_ : 0;
  const int64_t gap = static_cast<int64_t>(lost) + kRestoreGap;
  return WriteChange([&](SqlDatabase& database) -> absl::Status {
    RETURN_IF_ERROR(database.Change("UPDATE terms SET term = term + ?1", {gap}).status());
    RETURN_IF_ERROR(database.Change("UPDATE grants SET releasing = 1", {}).status());
    return database
        .Change("UPDATE meta SET generation = generation + ?1, sequence = sequence + ?2",
                {gap, static_cast<int64_t>(lost)})
        .status();
  });
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
  absl::Status status = CommitTransaction(batch);
  uint64_t sequence = 0;
  if (!status.ok()) writer_->Script("ROLLBACK").IgnoreError();
  // Read back instead of counted: after an error of COMMIT nobody knows whether the batch is in the file.
  writer_->Query("SELECT sequence FROM meta", {}, [&](const SqlRow& row) { sequence = row.Integer(0); })
      .IgnoreError();
  if (sequence > sequence_) sequence_ = sequence;
  return status;
}

absl::Status CatalogueFile::CommitTransaction(const std::deque<PendingChange*>& batch) {
  RETURN_IF_ERROR(writer_->Script("BEGIN IMMEDIATE"));
  int64_t changes = 0;
  for (PendingChange* pending : batch) {
    // A refused change must leave nothing behind and must not take the others of the batch with it.
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

absl::Status CatalogueFile::ReadRows(const char* sql, SqlValues values,
                                     const std::function<void(const SqlRow&)>& each) {
  const absl::MutexLock lock(&read_mu_);
  return reader_->Query(sql, values, each);
}

absl::Status CatalogueFile::ReadTogether(const Change& read) {
  const absl::MutexLock lock(&read_mu_);
  return read(*reader_);
}

absl::StatusOr<int64_t> TakeNextGeneration(SqlDatabase& database) {
  int64_t generation = 0;
  int64_t highest_in_use = 0;
  RETURN_IF_ERROR(database.Change("UPDATE meta SET generation = generation + 1", {}).status());
  RETURN_IF_ERROR(database.Query("SELECT generation FROM meta", {},
                                 [&](const SqlRow& row) { generation = row.Integer(0); }));
  // Both are primary keys, so this reads the last entry of each and no more.
  RETURN_IF_ERROR(
      database.Query("SELECT MAX(IFNULL((SELECT MAX(generation) FROM grants), 0), "
                     "IFNULL((SELECT MAX(generation) FROM heartbeat_luns), 0))",
                     {}, [&](const SqlRow& row) { highest_in_use = row.Integer(0); }));
  LK_CHECK(generation > highest_in_use, "a generation is never used again");
  return generation;
}

}  // namespace lunkeeper
