// An older catalogue is brought to this program's tables; what is not ours to change stays as it is.
#include "devices/array/tgt/catalogue_schema.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/test_host.h"
#include "devices/array/tgt/catalogue.h"

namespace lunkeeper {
namespace {

using testing::TempDir;

const ClusterId kCluster("c1");
const NodeId kA("a.1"), kB("b.1"), kC("c.1");

// What the program made whose schema was 1, and what it had stored.
constexpr char kSchema1[] = R"(
PRAGMA journal_mode=WAL;
BEGIN;
CREATE TABLE meta(
  only_row INTEGER PRIMARY KEY CHECK(only_row = 1), array TEXT NOT NULL, schema INTEGER NOT NULL,
  sequence INTEGER NOT NULL, generation INTEGER NOT NULL);
CREATE TABLE volumes(
  id TEXT PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL, size INTEGER NOT NULL,
  asked_size INTEGER NOT NULL,
  provisioning INTEGER NOT NULL, durability INTEGER NOT NULL, source_snapshot TEXT NOT NULL,
  source_volume TEXT NOT NULL, serial TEXT NOT NULL, created INTEGER NOT NULL, copying INTEGER NOT NULL,
  UNIQUE(cluster, name)) WITHOUT ROWID;
CREATE INDEX volumes_of_cluster ON volumes(cluster, id);
CREATE INDEX volumes_copying ON volumes(copying) WHERE copying = 1;
CREATE TABLE snapshots(
  id TEXT PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL, source TEXT NOT NULL, size INTEGER NOT NULL,
  created INTEGER NOT NULL, copying INTEGER NOT NULL, UNIQUE(cluster, name)) WITHOUT ROWID;
CREATE INDEX snapshots_of_cluster ON snapshots(cluster, id);
CREATE INDEX snapshots_of_volume ON snapshots(source, id);
CREATE INDEX snapshots_copying ON snapshots(copying) WHERE copying = 1;
CREATE TABLE grants(
  generation INTEGER PRIMARY KEY, cluster TEXT NOT NULL, volume TEXT NOT NULL, node TEXT NOT NULL,
  access INTEGER NOT NULL, owner INTEGER NOT NULL, secret TEXT NOT NULL, releasing INTEGER NOT NULL,
  UNIQUE(volume, node));
CREATE INDEX grants_of_node ON grants(cluster, node);
CREATE INDEX grants_releasing ON grants(releasing) WHERE releasing = 1;
CREATE TABLE fences(
  cluster TEXT NOT NULL, node TEXT NOT NULL, generation INTEGER NOT NULL, term INTEGER NOT NULL,
  PRIMARY KEY(cluster, node)) WITHOUT ROWID;
CREATE TABLE fenced_volumes(
  cluster TEXT NOT NULL, node TEXT NOT NULL, volume TEXT NOT NULL,
  PRIMARY KEY(cluster, node, volume)) WITHOUT ROWID;
CREATE TABLE heartbeat_luns(
  generation INTEGER PRIMARY KEY, cluster TEXT NOT NULL, node TEXT NOT NULL, secret TEXT NOT NULL,
  UNIQUE(cluster, node));
CREATE TABLE terms(
  cluster TEXT PRIMARY KEY, term INTEGER NOT NULL, holder TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES(1, 'a1', 1, 41, 17);
INSERT INTO volumes VALUES('a1-v1', 'c1', 'one', 1048576, 1048576, 0, 0, '', '', 'serial-1', 5, 0);
INSERT INTO volumes VALUES('a1-v2', 'c1', 'two', 2097152, 1048576, 1, 1, 'a1-s1', '', 'serial-2', 6, 0);
INSERT INTO volumes VALUES('a1-v3', 'c1', 'three', 1048576, 1048576, 0, 0, '', '', 'serial-3', 7, 0);
INSERT INTO snapshots VALUES('a1-s1', 'c1', 'snap', 'a1-v1', 1048576, 8, 0);
INSERT INTO grants VALUES(11, 'c1', 'a1-v1', 'a.1', 0, 0, 'secret-of-a-16ch', 0);
INSERT INTO grants VALUES(12, 'c1', 'a1-v2', 'a.1', 2, 1, 'secret-of-a2-16c', 0);
INSERT INTO fences VALUES('c1', 'b.1', 13, 4);
INSERT INTO fenced_volumes VALUES('c1', 'b.1', 'a1-v3');
INSERT INTO heartbeat_luns VALUES(14, 'c1', 'a.1', 'secret-of-hb-16c');
INSERT INTO terms VALUES('c1', 4, 'leader-1');
COMMIT;
)";

// What a later program changed, whose schema was 2.
constexpr char kSchema2[] = R"(
BEGIN;
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
UPDATE meta SET schema = 2, target_key = 'a key of 32 digits, more or less';
UPDATE volumes SET uses = 9 WHERE id = 'a1-v1';
UPDATE volumes SET uses = 36 WHERE id = 'a1-v2';
COMMIT;
)";

// And what was changed until schema 6.
constexpr char kSchema6[] = R"(
BEGIN;
ALTER TABLE snapshots ADD COLUMN group_id TEXT NOT NULL DEFAULT '';
CREATE INDEX snapshots_of_group ON snapshots(group_id) WHERE group_id <> '';
CREATE TABLE snapshot_groups(
  id TEXT PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL, created INTEGER NOT NULL,
  UNIQUE(cluster, name)) WITHOUT ROWID;
ALTER TABLE volumes ADD COLUMN max_iops INTEGER NOT NULL DEFAULT 0;
ALTER TABLE volumes ADD COLUMN max_bandwidth INTEGER NOT NULL DEFAULT 0;
ALTER TABLE volumes ADD COLUMN limits_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE volumes ADD COLUMN claim TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN tgtd INTEGER NOT NULL DEFAULT 0;
UPDATE meta SET schema = 6;
UPDATE volumes SET max_iops = 300, limits_version = 2 WHERE id = 'a1-v3';
COMMIT;
)";

// And schema 7.
constexpr char kSchema7[] = R"(
BEGIN;
ALTER TABLE volumes ADD COLUMN digests INTEGER NOT NULL DEFAULT 0;
UPDATE meta SET schema = 7;
COMMIT;
)";

std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct OldCatalogue {
  OldCatalogue() { Run(kSchema1); }
  void Run(const char* sql) const {
    const auto database = SqlDatabase::Open(path, SqlDatabase::Mode::kReadWrite);
    REQUIRE(database.ok());
    REQUIRE((*database)->Script(sql) == absl::OkStatus());
  }
  // Every table's columns, with type, default and place in the key.
  std::string Columns(const std::string& file) const {
    const auto database = SqlDatabase::Open(file, SqlDatabase::Mode::kReadOnly);
    REQUIRE(database.ok());
    std::string columns;
    REQUIRE(
        (*database)
            ->Query("SELECT m.name, c.name, c.type, c.\"notnull\", c.dflt_value, c.pk FROM sqlite_master m, "
                    "pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY 1, 2",
                    {},
                    [&](const SqlRow& row) {
                      for (int i = 0; i < 6; ++i) absl::StrAppend(&columns, row.Text(i), " ");
                      columns += '\n';
                    })
            .ok());
    return columns;
  }
  int64_t Schema() const {
    return (*ReadHead(**SqlDatabase::Open(path, SqlDatabase::Mode::kReadOnly)))->schema;
  }

  const TempDir directory;
  const std::string path = directory / "catalogue.db";
};

void CheckContents(Catalogue& catalogue) {
  CHECK(catalogue.target_key().size() == 32);
  CHECK(catalogue.sequence() == 41);
  const auto volume = catalogue.volumes().FindVolume(kCluster, VolumeId("a1-v2"));
  REQUIRE(volume.ok());
  CHECK(volume->volume.spec.name == "two");
  CHECK(volume->volume.spec.size_bytes == 2 << 20);
  CHECK(volume->asked_size_bytes == 1 << 20);
  CHECK(volume->volume.spec.provisioning == Provisioning::kThick);
  CHECK(volume->volume.spec.durability == Durability::kSync);
  CHECK(volume->volume.spec.source_snapshot == SnapshotId("a1-s1"));
  CHECK(volume->volume.serial == "serial-2");
  CHECK(volume->volume.spec.claim.empty());
  CHECK(volume->volume.spec.digests == Digests::kNone);
  // Used by several nodes so far; by one; by none.
  CHECK(volume->volume.spec.uses.ToText() == "shared-write filesystem, shared-write block");
  CHECK(catalogue.volumes().FindVolume(kCluster, VolumeId("a1-v1"))->volume.spec.uses.ToText() ==
        "exclusive filesystem, exclusive block");
  CHECK(catalogue.volumes().FindVolume(kCluster, VolumeId("a1-v3"))->volume.spec.uses.empty());
  REQUIRE(catalogue.volumes().ListAllSnapshots()->size() == 1);
  CHECK(catalogue.volumes().ListAllSnapshots()->front().snapshot.group.empty());
  const auto grant = catalogue.grants().FindGrant(VolumeId("a1-v1"), kA);
  REQUIRE((grant.ok() && grant->has_value()));
  CHECK((*grant)->generation == 11);
  CHECK((*grant)->secret == "secret-of-a-16ch");
  CHECK_FALSE((*grant)->releasing);
  CHECK((*grant)->target_secret.empty());
  CHECK((*grant)->tgtd == 0);  // there was no other
  const auto fences = catalogue.fences().ListFences(kCluster);
  REQUIRE((fences.ok() && fences->size() == 1));
  CHECK(fences->front().node == kB);
  CHECK(fences->front().generation == 13);
  CHECK(fences->front().volumes == std::vector<VolumeId>{VolumeId("a1-v3")});
  CHECK(fences->front().fenced_by.empty());
  CHECK(catalogue.grants().ListAllHeartbeatLuns()->front().secret == "secret-of-hb-16c");
}

// What it is there for goes on: rows are added beside the old ones, with numbers after theirs.
void CheckWorks(Catalogue& catalogue) {
  CHECK(absl::IsFailedPrecondition(catalogue.fences().CheckNotFenced(kCluster, kB)));
  const auto grant = catalogue.grants().AddGrant(
      kCluster, {VolumeId("a1-v3"), kA, Access::kExclusive, GrantOwner::kNode}, {"secret"});
  REQUIRE(grant.ok());
  CHECK(grant->generation == 18);
  CHECK(absl::IsAborted(
      catalogue.grants()
          .AddGrant(kCluster, {VolumeId("a1-v1"), kC, Access::kExclusive, GrantOwner::kNode}, {"secret"})
          .status()));
  CHECK(*catalogue.fences().BeginTerm(kCluster, "leader-2") == 5);
  SnapshotGroup group{
      .id = SnapshotGroupId("a1-g1"), .name = "group", .created = absl::Now(), .snapshots = {}};
  group.snapshots.push_back({.id = SnapshotId("a1-s2"),
                             .name = "member",
                             .source = VolumeId("a1-v1"),
                             .size_bytes = 1 << 20,
                             .created = group.created,
                             .ready = true,
                             .group = group.id});
  REQUIRE(catalogue.volumes().InsertGroup(kCluster, group) == absl::OkStatus());
  CHECK(catalogue.volumes().FindGroup(kCluster, group.id)->snapshots.size() == 1);
}

TEST_CASE_METHOD(OldCatalogue, "a catalogue of the program before this one goes on with all it has") {
  {
    const auto catalogue = Catalogue::Open(path, "a1");
    REQUIRE(catalogue.status() == absl::OkStatus());
    CheckContents(**catalogue);
    CheckWorks(**catalogue);
  }
  CHECK(Schema() > 1);
  CHECK(Catalogue::Open(path, "a1").ok());
}

TEST_CASE_METHOD(OldCatalogue, "a catalogue whose volumes have no limits yet goes on, and takes them") {
  Run(kSchema2);
  const std::string before = Columns(path);
  {
    const auto catalogue = Catalogue::Open(path, "a1");
    REQUIRE(catalogue.status() == absl::OkStatus());
    CHECK((*catalogue)->target_key() == "a key of 32 digits, more or less");
    CheckContents(**catalogue);
    VolumeCatalogue& volumes = (*catalogue)->volumes();
    CHECK(volumes.FindVolume(kCluster, VolumeId("a1-v1"))->volume.spec.limits == VolumeLimits());
    REQUIRE(volumes.ModifyVolume(kCluster, VolumeId("a1-v1"), {.max_iops = 200}) == absl::OkStatus());
    CHECK(volumes.FindVolume(kCluster, VolumeId("a1-v1"))->volume.spec.limits.iops == 200);
    CheckWorks(**catalogue);
  }
  CHECK(Columns(path + ".schema-2") == before);
  const auto again = Catalogue::Open(path, "a1");
  CHECK((*again)->volumes().FindVolume(kCluster, VolumeId("a1-v1"))->volume.spec.limits.iops == 200);
}

TEST_CASE_METHOD(OldCatalogue, "a catalogue whose volumes have no digests yet goes on, and takes them") {
  Run(kSchema2);
  Run(kSchema6);
  const std::string before = Columns(path);
  const VolumeId used("a1-v1"), unused("a1-v3");
  {
    const auto catalogue = Catalogue::Open(path, "a1");
    REQUIRE(catalogue.status() == absl::OkStatus());
    CheckContents(**catalogue);
    VolumeCatalogue& volumes = (*catalogue)->volumes();
    CHECK(volumes.FindVolume(kCluster, unused)->volume.spec.digests == Digests::kNone);
    REQUIRE(volumes.ModifyVolume(kCluster, unused, {.digests = Digests::kAll}) == absl::OkStatus());
    CHECK(absl::IsFailedPrecondition(volumes.ModifyVolume(kCluster, used, {.digests = Digests::kAll})));
    CheckWorks(**catalogue);
  }
  CHECK(Columns(path + ".schema-6") == before);
  const auto again = Catalogue::Open(path, "a1");
  const VolumeSpec spec = (*again)->volumes().FindVolume(kCluster, unused)->volume.spec;
  CHECK(spec.digests == Digests::kAll);
  CHECK(spec.limits.iops == 300);
}

TEST_CASE_METHOD(OldCatalogue, "a catalogue that does not know which copy it is goes on as the original") {
  Run(kSchema2);
  Run(kSchema6);
  Run(kSchema7);
  PoolIdentity original;
  {
    const auto catalogue = Catalogue::Open(path, "a1");
    REQUIRE(catalogue.status() == absl::OkStatus());
    CheckContents(**catalogue);
    original = (*catalogue)->identity();
    CHECK(original.restored_at == 0);
    REQUIRE((*catalogue)->SkipTo(0) == absl::OkStatus());
    CHECK((*catalogue)->identity().restored_at > 0);
  }
  const auto restored = Catalogue::Open(path, "a1");
  CHECK(CheckCopy((*restored)->identity(), original).ok());
  CHECK(absl::IsUnavailable(CheckCopy(original, (*restored)->identity())));
}

TEST_CASE_METHOD(OldCatalogue, "a migrated catalogue has the tables of a new one") {
  REQUIRE(Catalogue::Open(path, "a1").ok());
  const std::string fresh = directory / "fresh.db";
  REQUIRE(Catalogue::Open(fresh, "a1").ok());
  CHECK(Columns(path) == Columns(fresh));
}

TEST_CASE_METHOD(OldCatalogue, "the old catalogue stays beside the migrated one, for the old program only") {
  const std::string before = Columns(path);
  REQUIRE(Catalogue::Open(path, "a1").ok());
  const std::string copy = path + ".schema-1";
  CHECK(Columns(copy) == before);
  struct stat file {};
  REQUIRE(::stat(copy.c_str(), &file) == 0);
  CHECK((file.st_mode & 0777) == 0600);  // it has secrets
  // Going back and coming again.
  ::unlink((path + "-wal").c_str());
  ::unlink((path + "-shm").c_str());
  REQUIRE(::rename(copy.c_str(), path.c_str()) == 0);
  const auto again = Catalogue::Open(path, "a1");
  REQUIRE(again.status() == absl::OkStatus());
  CheckContents(**again);
}

TEST_CASE_METHOD(OldCatalogue, "a catalogue is migrated also where no copy of it can be kept") {
  REQUIRE(::mkdir((path + ".schema-1").c_str(), 0700) == 0);
  const auto catalogue = Catalogue::Open(path, "a1");
  REQUIRE(catalogue.status() == absl::OkStatus());
  CheckContents(**catalogue);
}

#ifdef LUNKEEPER_FAIL_POINTS
TEST_CASE_METHOD(OldCatalogue,
                 "a migration that is killed leaves the old tables or the new, and ends later") {
  const auto [fail_point, schema] = GENERATE(table<const char*, int64_t>(
      {{"array.migrate.copied", 1}, {"array.migrate.changed", 1}, {"array.migrate.committed", 8}}));
  const std::string before = Columns(path);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("LUNKEEPER_FAIL_POINT", fail_point, 1);
    ::_exit(Catalogue::Open(path, "a1").ok() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  CHECK(Schema() == schema);
  CHECK((Columns(path) == before) == (schema == 1));
  const auto catalogue = Catalogue::Open(path, "a1");
  REQUIRE(catalogue.status() == absl::OkStatus());
  CheckContents(**catalogue);
  CheckWorks(**catalogue);
}
#endif

// Each ended by a kill too, so that part of the catalogue is in its log.
TEST_CASE_METHOD(OldCatalogue, "a catalogue that is not ours to open is refused and left as it is") {
  const bool newer = GENERATE(true, false);
  const bool killed = GENERATE(true, false);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto database = SqlDatabase::Open(path, SqlDatabase::Mode::kReadWrite);
    // A newer program may have more columns everywhere, and this one's names for other things.
    if (newer)
      (*database)
          ->Script("UPDATE meta SET schema = 1000; ALTER TABLE meta ADD COLUMN more TEXT; DROP TABLE terms;")
          .IgnoreError();
    (*database)->Script("UPDATE meta SET sequence = 42").IgnoreError();
    if (!killed) (*database)->Script("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  const std::string before = ContentOf(path), log = ContentOf(path + "-wal");
  CHECK(log.empty() != killed);
  const absl::Status refused = Catalogue::Open(path, newer ? "a1" : "other").status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(absl::StrContains(refused.message(), newer ? "newer program" : "belongs to array a1"));
  CHECK(ContentOf(path) == before);
  CHECK(ContentOf(path + "-wal") == log);
}

TEST_CASE_METHOD(OldCatalogue, "who finds the catalogue open in another program is told so") {
  int opened[2];
  REQUIRE(::pipe(opened) == 0);
  // As `sqlite3 catalogue.db` in a shell, also between two statements.
  const pid_t child = ::fork();
  if (child == 0) {
    sqlite3* shell = nullptr;
    sqlite3_open(path.c_str(), &shell);
    sqlite3_exec(shell, "SELECT * FROM meta", nullptr, nullptr, nullptr);
    [[maybe_unused]] const ssize_t told = ::write(opened[1], "o", 1);
    ::pause();
  }
  char told = 0;
  CHECK(::read(opened[0], &told, 1) == 1);
  const absl::Status refused = Catalogue::Open(path, "a1").status();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(opened[0]);
  ::close(opened[1]);
  CHECK(absl::StrContains(refused.message(), "another program has the catalogue open"));
  CHECK(Catalogue::Open(path, "a1").ok());
}

}  // namespace
}  // namespace lunkeeper
