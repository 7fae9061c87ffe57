// Volumes, snapshots and groups as rows. Each function is one statement or one change; what may not be broken
// is checked inside the change, since grants and copies come and go on other threads until it runs.
//
// `copying` closes two gaps where the pool cannot reflink: RefuseIfGranted (here) keeps a copy from beginning
// while a node may write to its source, and RefuseIfCopied (grant_catalogue.cc) keeps a grant from being
// given while the source is copied. Both look inside a change, so one of the two always sees the other.
#include "devices/array/tgt/volume_catalogue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// Macros, because a statement has to be one literal: its address is the key of the prepared statement.
#define VOLUME_COLUMNS                                                                                      \
  "id, cluster, name, size, asked_size, provisioning, durability, source_snapshot, source_volume, serial, " \
  "created, copying, uses, fs_type, max_iops, max_bandwidth, limits_version, claim, digests"
#define SNAPSHOT_COLUMNS "id, cluster, name, source, size, created, copying, group_id"
#define GROUP_COLUMNS "id, name, created"

// The numbers are places in VOLUME_COLUMNS.
VolumeRow VolumeFrom(const SqlRow& row) {
  VolumeRow out;
  out.volume.id = VolumeId(row.Text(0));
  out.cluster = ClusterId(row.Text(1));
  VolumeSpec& spec = out.volume.spec;
  spec.name = row.Text(2);
  spec.size_bytes = static_cast<uint64_t>(row.Integer(3));
  out.asked_size_bytes = static_cast<uint64_t>(row.Integer(4));
  spec.provisioning = static_cast<Provisioning>(row.Integer(5));
  spec.durability = static_cast<Durability>(row.Integer(6));
  spec.source_snapshot = SnapshotId(row.Text(7));
  spec.source_volume = VolumeId(row.Text(8));
  out.volume.serial = row.Text(9);
  out.volume.created = absl::FromUnixNanos(row.Integer(10));
  out.copying = row.Integer(11) != 0;
  spec.uses = VolumeUses(static_cast<uint64_t>(row.Integer(12)));
  spec.fs_type = row.Text(13);
  spec.limits = {.iops = static_cast<uint64_t>(row.Integer(14)),
                 .bytes_per_second = static_cast<uint64_t>(row.Integer(15)),
                 .version = static_cast<uint64_t>(row.Integer(16))};
  spec.claim = row.Text(17);
  spec.digests = static_cast<Digests>(row.Integer(18));
  return out;
}

// Likewise of SNAPSHOT_COLUMNS.
SnapshotRow SnapshotFrom(const SqlRow& row) {
  SnapshotRow out;
  out.snapshot.id = SnapshotId(row.Text(0));
  out.cluster = ClusterId(row.Text(1));
  out.snapshot.name = row.Text(2);
  out.snapshot.source = VolumeId(row.Text(3));
  out.snapshot.size_bytes = static_cast<uint64_t>(row.Integer(4));
  out.snapshot.created = absl::FromUnixNanos(row.Integer(5));
  out.snapshot.ready = row.Integer(6) == 0;
  out.snapshot.group = SnapshotGroupId(row.Text(7));
  return out;
}

absl::Status InsertRow(SqlDatabase& database, const ClusterId& cluster, const Snapshot& snapshot) {
  return database
      .Change("INSERT INTO snapshots(" SNAPSHOT_COLUMNS ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8)",
              {snapshot.id.value(), cluster.value(), snapshot.name, snapshot.source.value(),
               static_cast<int64_t>(snapshot.size_bytes), absl::ToUnixNanos(snapshot.created),
               int64_t{!snapshot.ready}, snapshot.group.value()})
      .status();
}

absl::StatusOr<std::vector<std::string>> ListHolders(SqlDatabase& database, const VolumeId& id) {
  return database.ReadTexts("SELECT node FROM grants WHERE volume = ?1", {id.value()});
}

// An initiator learns at its login whether writes are cached, and which digests there are, and would go on as
// it began.
absl::Status RefuseIfInUse(SqlDatabase& database, const VolumeId& id) {
  ASSIGN_OR_RETURN(const std::vector<std::string> nodes, ListHolders(database, id));
  if (nodes.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "volume ", id.value(), ": its durability and digests change only while no node has it, and ",
      absl::StrJoin(nodes, ", "), " does; nothing was changed: stop its pods first"));
}

absl::Status RefuseIfGranted(SqlDatabase& database, const VolumeId& id) {
  ASSIGN_OR_RETURN(const std::vector<std::string> nodes, ListHolders(database, id));
  if (nodes.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("volume ", id.value(), ": it is granted to ", absl::StrJoin(nodes, ", "),
                   "; unpublish and unstage it there first, or fence the node"));
}

// Of a copy: it was found before the change, and may be deleted or another cluster's since. The next start
// would look for it in vain, and fail.
absl::Status RefuseIfSourceGone(SqlDatabase& database, const VolumeRow& row) {
  const VolumeSpec& spec = row.volume.spec;
  bool found = false;
  const auto look = [&](const char* sql, const std::string& source) {
    return database.Query(sql, {source, row.cluster.value()}, [&](const SqlRow&) { found = true; });
  };
  RETURN_IF_ERROR(
      spec.source_snapshot.empty()
          ? look("SELECT 1 FROM volumes WHERE id = ?1 AND cluster = ?2", spec.source_volume.value())
          : look("SELECT 1 FROM snapshots WHERE id = ?1 AND cluster = ?2", spec.source_snapshot.value()));
  if (found) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("volume ", spec.name, ": its source is gone"));
}

// A copy that a crash interrupts begins again from its source.
absl::Status RefuseIfCopiedFrom(SqlDatabase& database, const std::string& snapshot) {
  bool copied = false;
  RETURN_IF_ERROR(database.Query("SELECT 1 FROM volumes WHERE copying = 1 AND source_snapshot = ?1",
                                 {snapshot}, [&](const SqlRow&) { copied = true; }));
  if (!copied) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("snapshot ", snapshot, ": it is being copied from; try again"));
}

template <class Row>
absl::StatusOr<std::optional<Row>> AtMostOne(absl::StatusOr<std::vector<Row>> rows) {
  if (!rows.ok()) return rows.status();
  if (rows->empty()) return std::optional<Row>();
  return std::optional<Row>(std::move(rows->front()));
}

}  // namespace

absl::StatusOr<std::vector<VolumeRow>> VolumeCatalogue::ReadVolumes(const char* sql, SqlValues values) {
  std::vector<VolumeRow> rows;
  RETURN_IF_ERROR(file_.ReadRows(sql, values, [&](const SqlRow& row) { rows.push_back(VolumeFrom(row)); }));
  return rows;
}

absl::StatusOr<std::vector<SnapshotRow>> VolumeCatalogue::ReadSnapshots(const char* sql, SqlValues values) {
  std::vector<SnapshotRow> rows;
  RETURN_IF_ERROR(file_.ReadRows(sql, values, [&](const SqlRow& row) { rows.push_back(SnapshotFrom(row)); }));
  return rows;
}

absl::Status VolumeCatalogue::InsertVolume(const VolumeRow& row) {
  const VolumeSpec& spec = row.volume.spec;
  return file_.WriteChange([&](SqlDatabase& database) -> absl::Status {
    if (row.copying) {
      RETURN_IF_ERROR(RefuseIfSourceGone(database, row));
      RETURN_IF_ERROR(RefuseIfGranted(database, spec.source_volume));
    }
    return database
        .Change("INSERT INTO volumes(" VOLUME_COLUMNS
                ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19)",
                {row.volume.id.value(), row.cluster.value(), spec.name, static_cast<int64_t>(spec.size_bytes),
                 static_cast<int64_t>(row.asked_size_bytes), static_cast<int64_t>(spec.provisioning),
                 static_cast<int64_t>(spec.durability), spec.source_snapshot.value(),
                 spec.source_volume.value(), row.volume.serial, absl::ToUnixNanos(row.volume.created),
                 int64_t{row.copying}, static_cast<int64_t>(spec.uses.bits()), spec.fs_type,
                 static_cast<int64_t>(spec.limits.iops), static_cast<int64_t>(spec.limits.bytes_per_second),
                 static_cast<int64_t>(spec.limits.version), spec.claim, static_cast<int64_t>(spec.digests)})
        .status();
  });
}

absl::StatusOr<VolumeRow> VolumeCatalogue::FindVolume(const ClusterId& cluster, const VolumeId& id) {
  ASSIGN_OR_RETURN(auto rows,
                   ReadVolumes("SELECT " VOLUME_COLUMNS " FROM volumes WHERE id = ?1 AND cluster = ?2",
                               {id.value(), cluster.value()}));
  if (rows.empty())
    return absl::NotFoundError(absl::StrCat("volume ", id.value(), ": there is no such volume"));
  return std::move(rows.front());
}

absl::StatusOr<std::optional<VolumeRow>> VolumeCatalogue::FindVolumeNamed(const ClusterId& cluster,
                                                                          const std::string& name) {
  return AtMostOne(ReadVolumes("SELECT " VOLUME_COLUMNS " FROM volumes WHERE cluster = ?1 AND name = ?2",
                               {cluster.value(), name}));
}

// Pages go by the last id of the one before, so that what is made or deleted meanwhile moves no row from one
// page to another. A volume whose content is not there yet is nobody's to see.
absl::StatusOr<std::vector<VolumeRow>> VolumeCatalogue::ListVolumes(const ClusterId& cluster,
                                                                    const std::string& after, size_t limit) {
  return ReadVolumes("SELECT " VOLUME_COLUMNS
                     " FROM volumes WHERE cluster = ?1 AND id > ?2 AND copying = 0 "
                     "ORDER BY id LIMIT ?3",
                     {cluster.value(), after, static_cast<int64_t>(limit)});
}

absl::StatusOr<std::vector<VolumeRow>> VolumeCatalogue::ListGrantedVolumes(const ClusterId& cluster,
                                                                           const NodeId& node) {
  return ReadVolumes("SELECT " VOLUME_COLUMNS
                     " FROM volumes WHERE cluster = ?1 AND id IN"
                     " (SELECT volume FROM grants WHERE cluster = ?1 AND (?2 = '' OR node = ?2))",
                     {cluster.value(), node.value()});
}

// For a look at the files of the pool, of all clusters. Unlike ListVolumes, this includes volumes that are
// still being copied: their files are not garbage.
absl::StatusOr<std::vector<VolumeRow>> VolumeCatalogue::ListAllVolumes() {
  return ReadVolumes("SELECT " VOLUME_COLUMNS " FROM volumes", {});
}

// What the pool has promised.
absl::StatusOr<VolumeCatalogue::Sums> VolumeCatalogue::SumUp() {
  Sums sums;
  RETURN_IF_ERROR(
      file_.ReadRows("SELECT cluster, size, 0 FROM volumes UNION ALL SELECT cluster, size, 1 FROM snapshots",
                     {}, [&](const SqlRow& row) {
                       sums.sizes[ClusterId(row.Text(0))] += static_cast<uint64_t>(row.Integer(1));
                       ++(row.Integer(2) == 0 ? sums.volumes : sums.snapshots);
                     }));
  return sums;
}

// Read and written in one change: of two calls at once, each keeps what the other changes.
absl::Status VolumeCatalogue::ModifyVolume(const ClusterId& cluster, const VolumeId& id,
                                           const VolumeChange& change) {
  return file_.WriteChange([&](SqlDatabase& database) -> absl::Status {
    std::optional<VolumeSpec> before;
    RETURN_IF_ERROR(database.Query("SELECT " VOLUME_COLUMNS " FROM volumes WHERE id = ?1 AND cluster = ?2",
                                   {id.value(), cluster.value()},
                                   [&](const SqlRow& row) { before = VolumeFrom(row).volume.spec; }));
    if (!before) return absl::NotFoundError(absl::StrCat("volume ", id.value(), ": there is no such volume"));
    const VolumeSpec after = WithChange(*before, change);
    if (NeedsNoGrant(*before, after)) RETURN_IF_ERROR(RefuseIfInUse(database, id));
    return database
        .Change(
            "UPDATE volumes SET max_iops = ?2, max_bandwidth = ?3, limits_version = ?4, durability = ?5, "
            "digests = ?6 WHERE id = ?1",
            {id.value(), static_cast<int64_t>(after.limits.iops),
             static_cast<int64_t>(after.limits.bytes_per_second), static_cast<int64_t>(after.limits.version),
             static_cast<int64_t>(after.durability), static_cast<int64_t>(after.digests)})
        .status();
  });
}

absl::Status VolumeCatalogue::SetVolumeSize(const VolumeId& id, uint64_t size_bytes) {
  return file_.WriteChange([&](SqlDatabase& database) {
    return database
        .Change("UPDATE volumes SET size = ?2 WHERE id = ?1", {id.value(), static_cast<int64_t>(size_bytes)})
        .status();
  });
}

absl::Status VolumeCatalogue::SetVolumeReady(const VolumeId& id) {
  return file_.WriteChange([&](SqlDatabase& database) {
    return database.Change("UPDATE volumes SET copying = 0 WHERE id = ?1", {id.value()}).status();
  });
}

absl::Status VolumeCatalogue::CheckNotGranted(const VolumeId& id) {
  return file_.ReadTogether([&](SqlDatabase& database) { return RefuseIfGranted(database, id); });
}

absl::Status VolumeCatalogue::DeleteVolume(const VolumeId& id,
                                           const std::function<absl::Status()>& mark_files) {
  return file_.WriteChange([&](SqlDatabase& database) -> absl::Status {
    RETURN_IF_ERROR(RefuseIfGranted(database, id));
    // As RefuseIfCopiedFrom, of a volume.
    bool copied = false;
    for (const char* sql : {"SELECT 1 FROM volumes WHERE copying = 1 AND source_volume = ?1",
                            "SELECT 1 FROM snapshots WHERE copying = 1 AND source = ?1"}) {
      RETURN_IF_ERROR(database.Query(sql, {id.value()}, [&](const SqlRow&) { copied = true; }));
    }
    if (copied) {
      return absl::AbortedError(absl::StrCat("volume ", id.value(), ": it is being copied from; try again"));
    }
    if (mark_files) RETURN_IF_ERROR(mark_files());
    return database.Change("DELETE FROM volumes WHERE id = ?1", {id.value()}).status();
  });
}

absl::Status VolumeCatalogue::InsertSnapshot(const SnapshotRow& row) {
  const Snapshot& snapshot = row.snapshot;
  return file_.WriteChange([&](SqlDatabase& database) -> absl::Status {
    if (!snapshot.ready) RETURN_IF_ERROR(RefuseIfGranted(database, snapshot.source));
    return InsertRow(database, row.cluster, snapshot);
  });
}

absl::StatusOr<SnapshotRow> VolumeCatalogue::FindSnapshot(const ClusterId& cluster, const SnapshotId& id) {
  ASSIGN_OR_RETURN(auto rows,
                   ReadSnapshots("SELECT " SNAPSHOT_COLUMNS " FROM snapshots WHERE id = ?1 AND cluster = ?2",
                                 {id.value(), cluster.value()}));
  if (rows.empty()) {
    return absl::NotFoundError(absl::StrCat("snapshot ", id.value(), ": there is no such snapshot"));
  }
  return std::move(rows.front());
}

absl::StatusOr<std::optional<SnapshotRow>> VolumeCatalogue::FindSnapshotNamed(const ClusterId& cluster,
                                                                              const std::string& name) {
  return AtMostOne(ReadSnapshots("SELECT " SNAPSHOT_COLUMNS
                                 " FROM snapshots WHERE cluster = ?1 AND name = ?2",
                                 {cluster.value(), name}));
}

absl::StatusOr<std::vector<SnapshotRow>> VolumeCatalogue::ListSnapshots(const ClusterId& cluster,
                                                                        const VolumeId& source,
                                                                        const std::string& after,
                                                                        size_t limit) {
  if (source.empty()) {
    return ReadSnapshots("SELECT " SNAPSHOT_COLUMNS
                         " FROM snapshots WHERE cluster = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
                         {cluster.value(), after, static_cast<int64_t>(limit)});
  }
  return ReadSnapshots("SELECT " SNAPSHOT_COLUMNS
                       " FROM snapshots WHERE source = ?1 AND id > ?2 AND cluster = ?3 ORDER BY id LIMIT ?4",
                       {source.value(), after, cluster.value(), static_cast<int64_t>(limit)});
}

absl::StatusOr<std::vector<SnapshotRow>> VolumeCatalogue::ListAllSnapshots() {
  return ReadSnapshots("SELECT " SNAPSHOT_COLUMNS " FROM snapshots", {});
}

absl::Status VolumeCatalogue::SetSnapshotReady(const SnapshotId& id) {
  return file_.WriteChange([&](SqlDatabase& database) {
    return database.Change("UPDATE snapshots SET copying = 0 WHERE id = ?1", {id.value()}).status();
  });
}

absl::Status VolumeCatalogue::DeleteSnapshot(const SnapshotId& id,
                                             const std::function<absl::Status()>& mark_files) {
  return file_.WriteChange([&](SqlDatabase& database) -> absl::Status {
    std::string group;
    RETURN_IF_ERROR(database.Query("SELECT group_id FROM snapshots WHERE id = ?1", {id.value()},
                                   [&](const SqlRow& row) { group = row.Text(0); }));
    if (!group.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("snapshot ", id.value(), ": it belongs to group ", group,
                                                     " and is deleted with that"));
    }
    RETURN_IF_ERROR(RefuseIfCopiedFrom(database, id.value()));
    if (mark_files) RETURN_IF_ERROR(mark_files());
    return database.Change("DELETE FROM snapshots WHERE id = ?1", {id.value()}).status();
  });
}

absl::Status VolumeCatalogue::InsertGroup(const ClusterId& cluster, const SnapshotGroup& group) {
  return file_.WriteChange([&](SqlDatabase& database) -> absl::Status {
    RETURN_IF_ERROR(
        database
            .Change("INSERT INTO snapshot_groups(cluster, " GROUP_COLUMNS ") VALUES(?1,?2,?3,?4)",
                    {cluster.value(), group.id.value(), group.name, absl::ToUnixNanos(group.created)})
            .status());
    for (const Snapshot& snapshot : group.snapshots) RETURN_IF_ERROR(InsertRow(database, cluster, snapshot));
    return absl::OkStatus();
  });
}

absl::StatusOr<std::optional<SnapshotGroup>> VolumeCatalogue::ReadGroup(const char* sql, SqlValues values) {
  std::optional<SnapshotGroup> group;
  const absl::Status read = file_.ReadTogether([&](SqlDatabase& database) -> absl::Status {
    RETURN_IF_ERROR(database.Query(sql, values, [&](const SqlRow& row) {
      group = SnapshotGroup{.id = SnapshotGroupId(row.Text(0)),
                            .name = row.Text(1),
                            .created = absl::FromUnixNanos(row.Integer(2)),
                            .snapshots = {}};
    }));
    if (!group.has_value()) return absl::OkStatus();
    return database.Query("SELECT " SNAPSHOT_COLUMNS
                          " FROM snapshots WHERE group_id = ?1 AND group_id <> '' ORDER BY id",
                          {group->id.value()},
                          [&](const SqlRow& row) { group->snapshots.push_back(SnapshotFrom(row).snapshot); });
  });
  RETURN_IF_ERROR(read);
  return group;
}

absl::StatusOr<SnapshotGroup> VolumeCatalogue::FindGroup(const ClusterId& cluster,
                                                         const SnapshotGroupId& id) {
  ASSIGN_OR_RETURN(auto group,
                   ReadGroup("SELECT " GROUP_COLUMNS " FROM snapshot_groups WHERE id = ?1 AND cluster = ?2",
                             {id.value(), cluster.value()}));
  if (group.has_value()) return *std::move(group);
  return absl::NotFoundError(absl::StrCat("snapshot group ", id.value(), ": there is no such group"));
}

absl::StatusOr<std::optional<SnapshotGroup>> VolumeCatalogue::FindGroupNamed(const ClusterId& cluster,
                                                                             const std::string& name) {
  return ReadGroup("SELECT " GROUP_COLUMNS " FROM snapshot_groups WHERE cluster = ?1 AND name = ?2",
                   {cluster.value(), name});
}

absl::Status VolumeCatalogue::DeleteGroup(const SnapshotGroupId& id,
                                          const std::function<absl::Status()>& mark_files) {
  return file_.WriteChange([&](SqlDatabase& database) -> absl::Status {
    ASSIGN_OR_RETURN(
        const auto members,
        database.ReadTexts("SELECT id FROM snapshots WHERE group_id = ?1 AND group_id <> ''", {id.value()}));
    for (const std::string& member : members) RETURN_IF_ERROR(RefuseIfCopiedFrom(database, member));
    RETURN_IF_ERROR(mark_files());
    RETURN_IF_ERROR(
        database.Change("DELETE FROM snapshots WHERE group_id = ?1 AND group_id <> ''", {id.value()})
            .status());
    return database.Change("DELETE FROM snapshot_groups WHERE id = ?1", {id.value()}).status();
  });
}

}  // namespace lunkeeper
