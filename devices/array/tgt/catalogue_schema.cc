// The tables of schema kSchema as they are made, and for each older schema the statements that lead to the
// next one. A change of a table raises kSchema, changes kTables, and adds a migration; a test holds that a
// migrated catalogue has the same columns as a new one.
//
// A new column has a default, and the default means "not known": what an older program stored has to stay
// valid without it.
#include "devices/array/tgt/catalogue_schema.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

constexpr int64_t kSchema = 8;

// Times are nanoseconds since 1970, sizes are bytes, flags are 0 or 1, enumerations the numbers of their C++
// values. Texts are never NULL: none is ''.
constexpr char kTables[] = R"(
-- One row. `array`: the name of the array this pool belongs to, for life. `schema`: kSchema of the program
-- that made the file. `sequence`: how many changes there have been. `generation`: the last one given out;
-- grants, fences and heartbeat LUNs share this counter, and it never falls. `target_key`: what the secrets
-- are made from by which targets prove themselves. `restored_at`: when an operator accepted this copy of the
-- pool; 0: never.
CREATE TABLE meta(
  only_row INTEGER PRIMARY KEY CHECK(only_row = 1), array TEXT NOT NULL, schema INTEGER NOT NULL,
  sequence INTEGER NOT NULL, generation INTEGER NOT NULL, target_key TEXT NOT NULL DEFAULT '',
  restored_at INTEGER NOT NULL DEFAULT 0);

-- A volume; its data are in the pool's file of the same id. `name` is what the orchestrator calls it.
-- `asked_size` is the size that it was made with: repeating that call must find it, also after it has grown.
-- `copying`: its source is being copied without a reflink; until then it is in no list and nobody may use it.
-- `uses`: what it was made for (VolumeUses::bits); 0: made before this was kept, and not granted since.
-- `fs_type`: the file system that it was made for; '' is any. `max_iops`, `max_bandwidth`: in a second; 0 is
-- any. `limits_version`: how often these two were set (VolumeLimits). `claim`: VolumeSpec::claim. `digests`:
-- what its sessions have to have.
CREATE TABLE volumes(
  id TEXT PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL, size INTEGER NOT NULL,
  asked_size INTEGER NOT NULL,
  provisioning INTEGER NOT NULL, durability INTEGER NOT NULL, source_snapshot TEXT NOT NULL,
  source_volume TEXT NOT NULL, serial TEXT NOT NULL, created INTEGER NOT NULL, copying INTEGER NOT NULL,
  uses INTEGER NOT NULL DEFAULT 0, fs_type TEXT NOT NULL DEFAULT '',
  max_iops INTEGER NOT NULL DEFAULT 0, max_bandwidth INTEGER NOT NULL DEFAULT 0,
  limits_version INTEGER NOT NULL DEFAULT 0, claim TEXT NOT NULL DEFAULT '',
  digests INTEGER NOT NULL DEFAULT 0, UNIQUE(cluster, name)) WITHOUT ROWID;
CREATE INDEX volumes_of_cluster ON volumes(cluster, id);
CREATE INDEX volumes_copying ON volumes(copying) WHERE copying = 1;

-- A snapshot; its data are in a file of its own. `source` may have been deleted since. `group_id`: the group
-- that it was made with; '' is none.
CREATE TABLE snapshots(
  id TEXT PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL, source TEXT NOT NULL, size INTEGER NOT NULL,
  created INTEGER NOT NULL, copying INTEGER NOT NULL, group_id TEXT NOT NULL DEFAULT '',
  UNIQUE(cluster, name)) WITHOUT ROWID;
CREATE INDEX snapshots_of_cluster ON snapshots(cluster, id);
CREATE INDEX snapshots_of_volume ON snapshots(source, id);
CREATE INDEX snapshots_copying ON snapshots(copying) WHERE copying = 1;
CREATE INDEX snapshots_of_group ON snapshots(group_id) WHERE group_id <> '';

-- A group of snapshots of one moment. Its row and theirs come and go in one change.
CREATE TABLE snapshot_groups(
  id TEXT PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL, created INTEGER NOT NULL,
  UNIQUE(cluster, name)) WITHOUT ROWID;

-- A grant: the right of `node` to use `volume`, and the target that enforces it. A node has at most one of a
-- volume. `secret` is its CHAP secret, and `target_secret` the one by which the target proves itself ('': it
-- does not). `releasing`: its target is being drained and never opens again; the row goes when the target is
-- gone. `node_uid`: of the orchestrator's Node object, if it named one. `tgtd`: which of the array's tgtds
-- has the target, from 0, for as long as the grant lives.
CREATE TABLE grants(
  generation INTEGER PRIMARY KEY, cluster TEXT NOT NULL, volume TEXT NOT NULL, node TEXT NOT NULL,
  access INTEGER NOT NULL, owner INTEGER NOT NULL, secret TEXT NOT NULL, releasing INTEGER NOT NULL,
  node_uid TEXT NOT NULL DEFAULT '', target_secret TEXT NOT NULL DEFAULT '', tgtd INTEGER NOT NULL DEFAULT 0,
  UNIQUE(volume, node));
CREATE INDEX grants_of_node ON grants(cluster, node);
CREATE INDEX grants_releasing ON grants(releasing) WHERE releasing = 1;

-- A fence in force: `node` gets no grant. `generation` names this fence, so that a late unfence of an earlier
-- one does not lift it. `term`: of the leader that asked for it last. `fenced_by` and `reason` are of the
-- last caller that gave any, at `fenced_at`, and for people. `node_uid`: as in grants.
CREATE TABLE fences(
  cluster TEXT NOT NULL, node TEXT NOT NULL, generation INTEGER NOT NULL, term INTEGER NOT NULL,
  node_uid TEXT NOT NULL DEFAULT '', fenced_by TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT '',
  fenced_at INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(cluster, node)) WITHOUT ROWID;
-- The volumes that the fence has taken from the node. They stay here after their grants are gone: the fence
-- notice on the node's heartbeat LUN lists them.
CREATE TABLE fenced_volumes(
  cluster TEXT NOT NULL, node TEXT NOT NULL, volume TEXT NOT NULL,
  PRIMARY KEY(cluster, node, volume)) WITHOUT ROWID;

-- A node's heartbeat LUN. Its generation numbers its target and its file, as a grant's does; its secrets are
-- as a grant's. `signing_key`: of what the node and the array write to it; '': they do not sign.
CREATE TABLE heartbeat_luns(
  generation INTEGER PRIMARY KEY, cluster TEXT NOT NULL, node TEXT NOT NULL, secret TEXT NOT NULL,
  target_secret TEXT NOT NULL DEFAULT '', signing_key TEXT NOT NULL DEFAULT '', UNIQUE(cluster, node));

-- The newest term of each cluster, and who began it. It never falls; an older one is refused.
CREATE TABLE terms(
  cluster TEXT PRIMARY KEY, term INTEGER NOT NULL, holder TEXT NOT NULL) WITHOUT ROWID;
)";

// kMigrations[n - 1] leads from schema n to n + 1.
constexpr const char* kMigrations[] = {
    // What a volume was made for, the target's own secret, signatures, and who fenced. A volume that a node
    // may write to was used in that way so far (VolumeUses): 9 by one node, 36 by several.
    R"(
ALTER TABLE meta ADD COLUMN target_key TEXT NOT NULL DEFAULT '';
ALTER TABLE volumes ADD COLUMN uses INTEGER NOT NULL DEFAULT 0;
ALTER TABLE volumes ADD COLUMN fs_type TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN node_uid TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN target_secret TEXT NOT NULL DEFAULT '';
ALTER TABLE fences ADD COLUMN node_uid TEXT NOT NULL DEFAULT '';
ALTER TABLE fences ADD COLUMN fenced_by TEXT NOT NULL DEFAULT '';
ALTER TABLE fences ADD COLUMN reason TEXT NOT NULL DEFAULT '';
ALTER TABLE fences ADD COLUMN fenced_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE heartbeat_luns ADD COLUMN target_secret TEXT NOT NULL DEFAULT '';
ALTER TABLE heartbeat_luns ADD COLUMN signing_key TEXT NOT NULL DEFAULT '';
UPDATE volumes SET uses = 9 WHERE EXISTS(SELECT 1 FROM grants WHERE volume = volumes.id AND access = 0);
UPDATE volumes SET uses = 36 WHERE EXISTS(SELECT 1 FROM grants WHERE volume = volumes.id AND access = 2);
)",
    // Groups of snapshots.
    R"(
ALTER TABLE snapshots ADD COLUMN group_id TEXT NOT NULL DEFAULT '';
CREATE INDEX snapshots_of_group ON snapshots(group_id) WHERE group_id <> '';
CREATE TABLE snapshot_groups(
  id TEXT PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL, created INTEGER NOT NULL,
  UNIQUE(cluster, name)) WITHOUT ROWID;
)",
    // Limits.
    R"(
ALTER TABLE volumes ADD COLUMN max_iops INTEGER NOT NULL DEFAULT 0;
ALTER TABLE volumes ADD COLUMN max_bandwidth INTEGER NOT NULL DEFAULT 0;
ALTER TABLE volumes ADD COLUMN limits_version INTEGER NOT NULL DEFAULT 0;
)",
    // Claims.
    "ALTER TABLE volumes ADD COLUMN claim TEXT NOT NULL DEFAULT ''",
    // Several tgtds. What was granted so far is in the only one there was.
    "ALTER TABLE grants ADD COLUMN tgtd INTEGER NOT NULL DEFAULT 0",
    // Digests. What there is goes on without.
    "ALTER TABLE volumes ADD COLUMN digests INTEGER NOT NULL DEFAULT 0",
    // Which copy of the pool it is. Whether one was ever restored is not known.
    "ALTER TABLE meta ADD COLUMN restored_at INTEGER NOT NULL DEFAULT 0"};
static_assert(std::size(kMigrations) == kSchema - 1);

absl::Status FileError(const char* doing, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(doing, " ", path));
}

absl::Status SyncPath(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd && ::fsync(fd.get()) == 0 ? absl::OkStatus() : FileError("sync", path);
}

// Whole under its last name, or not there.
absl::Status CopyBeside(SqlDatabase& database, const std::string& copy) {
  const std::string unfinished = absl::StrCat(copy, ".new");
  if (::unlink(unfinished.c_str()) != 0 && errno != ENOENT) return FileError("remove", unfinished);
  absl::Status copied = database.Change("VACUUM INTO ?1", {unfinished}).status();
  if (copied.ok()) copied = SyncPath(unfinished);
  if (!copied.ok()) ::unlink(unfinished.c_str());  // it may have taken the last of the room
  RETURN_IF_ERROR(copied);
  if (std::rename(unfinished.c_str(), copy.c_str()) != 0) return FileError("name", copy);
  return SyncPath(std::filesystem::path(copy).parent_path());
}

absl::Status MakeTargetKey(SqlDatabase& database) {
  return database
      .Change("UPDATE meta SET target_key = ?1 WHERE target_key = ''", {RandomSecret() + RandomSecret()})
      .status();
}

absl::Status RunMigrations(SqlDatabase& database, int64_t from) {
  RETURN_IF_ERROR(database.Script("BEGIN IMMEDIATE"));
  for (int64_t schema = from; schema < kSchema; ++schema)
    RETURN_IF_ERROR(database.Script(kMigrations[schema - 1]));
  RETURN_IF_ERROR(database.Change("UPDATE meta SET schema = ?1", {kSchema}).status());
  RETURN_IF_ERROR(MakeTargetKey(database));
  FAIL_POINT("array.migrate.changed");
  return database.Script("COMMIT");
}

}  // namespace

absl::StatusOr<std::optional<CatalogueHead>> ReadHead(SqlDatabase& database) {
  bool stored = false;
  RETURN_IF_ERROR(database.Query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'", {},
                                 [&](const SqlRow&) { stored = true; }));
  if (!stored) return std::optional<CatalogueHead>();
  std::optional<CatalogueHead> head;
  RETURN_IF_ERROR(database.Query("SELECT array, schema FROM meta", {}, [&](const SqlRow& row) {
    head = CatalogueHead{.array = row.Text(0), .schema = row.Integer(1)};
  }));
  return head;
}

absl::Status CheckHead(const std::string& path, const CatalogueHead& head, const std::string& array) {
  // Serving another array's pool would put this array's name into ids and targets of volumes that have
  // others.
  if (head.array != array) {
    return absl::FailedPreconditionError(absl::StrCat("open catalogue ", path, ": the pool belongs to array ",
                                                      head.array, ", not to ", array));
  }
  if (head.schema < 1)
    return absl::InternalError(absl::StrCat("open catalogue ", path, ": it has no schema"));
  // A newer program may keep rules in tables that this one does not know, and would break them.
  if (head.schema <= kSchema) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "open catalogue ", path, ": a newer program has made it (schema ", head.schema, "; this program knows ",
      kSchema, "); nothing was changed: start the newer program again"));
}

absl::Status CreateTables(SqlDatabase& database, const std::string& array) {
  RETURN_IF_ERROR(database.Script("BEGIN IMMEDIATE"));
  RETURN_IF_ERROR(database.Script(kTables));
  RETURN_IF_ERROR(
      database.Change("INSERT INTO meta VALUES(1, ?1, ?2, 0, 0, '', 0)", {array, kSchema}).status());
  RETURN_IF_ERROR(MakeTargetKey(database));
  return database.Script("COMMIT");
}

absl::Status MigrateTables(SqlDatabase& database, const std::string& path, const CatalogueHead& head) {
  if (head.schema == kSchema) return absl::OkStatus();
  const std::string copy = absl::StrCat(path, ".schema-", head.schema);
  // Only for who wants to go back to the older program; a full pool has to start without it.
  const absl::Status copied = CopyBeside(database, copy);
  if (!copied.ok())
    LogWarn("array", "no copy of the catalogue is kept from before its migration",
            {{"copy", copy}, {"error", std::string(copied.message())}});
  FAIL_POINT("array.migrate.copied");
  RETURN_IF_ERROR(RunMigrations(database, head.schema));
  FAIL_POINT("array.migrate.committed");
  LogInfo("array", "the catalogue is migrated",
          {{"from_schema", absl::StrCat(head.schema)}, {"to_schema", absl::StrCat(kSchema)}});
  return absl::OkStatus();
}

}  // namespace lunkeeper
