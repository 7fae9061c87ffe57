// Grants as rows. AddGrant is where the array decides whether a node gets a volume: everything that could
// forbid it is checked in the same transaction that inserts the row, in this order:
//   the node is fenced -> it has this very grant already -> another grant is in the way -> there is no such
//   volume -> it was not made for this use -> it is being copied -> the node has as many as it may have -> a
//   new row.
// That another grant is in the way comes before "no such volume", because a waiting node asks every second
// and nearly always meets the first.
#include "devices/array/tgt/grant_catalogue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "devices/array/tgt/fence_catalogue.h"
#include "devices/array/tgt/target_number.h"
#include "devices/node_id.h"

namespace lunkeeper {
namespace {

#define GRANT_COLUMNS \
  "generation, cluster, volume, node, access, owner, secret, releasing, node_uid, target_secret, tgtd"

GrantRow GrantFrom(const SqlRow& row) {
  GrantRow out;
  out.generation = static_cast<Generation>(row.Integer(0));
  out.cluster = ClusterId(row.Text(1));
  out.volume = VolumeId(row.Text(2));
  out.node = NodeId(row.Text(3));
  out.access = static_cast<Access>(row.Integer(4));
  out.owner = static_cast<GrantOwner>(row.Integer(5));
  out.secret = row.Text(6);
  out.releasing = row.Integer(7) != 0;
  out.node_uid = row.Text(8);
  out.target_secret = row.Text(9);
  out.tgtd = static_cast<int>(row.Integer(10));
  return out;
}

// A heartbeat LUN's row in the shape of a grant's, so that the same code serves both. All are in tgtd 0.
#define HEARTBEAT_LUN_COLUMNS \
  "generation, cluster, 'heartbeat', node, 0, 0, secret, 0, '', target_secret, 0, signing_key"

GrantRow HeartbeatLunFrom(const SqlRow& row) {
  GrantRow out = GrantFrom(row);
  out.signing_key = row.Text(11);
  return out;
}

// Of one machine. A machine that is set up anew becomes another node and needs another LUN; the limit is
// there because a broken one could do so for ever and fill the array.
constexpr int64_t kMostHeartbeatLuns = 16;
constexpr int64_t kMostInstances = 16;  // likewise, with grants

// Nothing: the cluster has no such volume.
absl::StatusOr<std::optional<VolumeUses>> ReadUses(SqlDatabase& database, const ClusterId& cluster,
                                                   const VolumeId& volume) {
  std::optional<VolumeUses> uses;
  RETURN_IF_ERROR(database.Query(
      "SELECT uses FROM volumes WHERE id = ?1 AND cluster = ?2", {volume.value(), cluster.value()},
      [&](const SqlRow& row) { uses = VolumeUses(static_cast<uint64_t>(row.Integer(0))); }));
  return uses;
}

// A volume that was made before uses were kept takes on the first one that may write, in either mode. Reading
// settles nothing: a volume that is read once must not be closed to writing for life.
absl::Status SettleUses(SqlDatabase& database, const GrantRequest& request, const VolumeUses& known) {
  if (!known.Allow(request.access, request.mode)) return NotMadeFor(request, known);
  if (!known.empty() || request.access == Access::kReadOnly) return absl::OkStatus();
  VolumeUses first;
  first.Add(request.access, VolumeMode::kAny);
  return database
      .Change("UPDATE volumes SET uses = ?2 WHERE id = ?1",
              {request.volume.value(), static_cast<int64_t>(first.bits())})
      .status();
}

// Nobody may write to a volume while it is being copied without a reflink.
absl::Status RefuseIfCopied(SqlDatabase& database, const VolumeId& volume) {
  bool copied = false;
  for (const char* sql : {"SELECT 1 FROM volumes WHERE copying = 1 AND (source_volume = ?1 OR id = ?1)",
                          "SELECT 1 FROM snapshots WHERE copying = 1 AND source = ?1"}) {
    RETURN_IF_ERROR(database.Query(sql, {volume.value()}, [&](const SqlRow&) { copied = true; }));
  }
  if (!copied) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("volume ", volume.value(), ": it is being copied; try again"));
}

// What the node has already, or nothing; the status says why it can have nothing now.
absl::StatusOr<std::optional<GrantRow>> FindHeldGrant(SqlDatabase& database, const ClusterId& cluster,
                                                      const GrantRequest& request) {
  std::vector<GrantRow> rows;
  RETURN_IF_ERROR(database.Query("SELECT " GRANT_COLUMNS " FROM grants WHERE volume = ?1",
                                 {request.volume.value()},
                                 [&](const SqlRow& row) { rows.push_back(GrantFrom(row)); }));
  if (rows.empty()) return std::optional<GrantRow>();
  ASSIGN_OR_RETURN(const std::optional<VolumeUses> uses, ReadUses(database, cluster, request.volume));
  const std::string volume = absl::StrCat("volume ", request.volume.value());
  for (GrantRow& row : rows) {
    const bool own = row.node == request.node && row.cluster == cluster;
    if (own && !row.releasing && row.access == request.access) return std::optional<GrantRow>(std::move(row));
    if (own && !row.releasing) {
      return absl::FailedPreconditionError(
          absl::StrCat(volume, ": node ", row.node.value(), " has it with another access; release it first"));
    }
    // A releasing grant of the node itself is in the way as well: its target has to be gone before the next
    // one, or two sessions of the node could write with different generations.
    if (!own && CanJoin(request.access, row.access, uses.value_or(VolumeUses()))) continue;
    return absl::AbortedError(absl::StrCat(volume, ": it is ",
                                           row.releasing ? "still being released by" : "held by", " node ",
                                           row.node.value()));
  }
  return std::optional<GrantRow>();
}

// From `<machine>.` up to `<machine>/`, since '/' follows '.' in ASCII. Those of `<machine>.other` lie among
// them, and are another machine's.
#define OTHER_INSTANCES_IN(table)                                       \
  "SELECT DISTINCT node FROM " table                                    \
  " WHERE cluster = ?1 AND node <> ?2 AND node > ?3 || '.' AND node < " \
  "?3 || '/'"

// The instances of a machine, beside this one, that `sql` lists (OTHER_INSTANCES_IN).
absl::StatusOr<int64_t> CountOtherInstances(SqlDatabase& database, const char* sql, const ClusterId& cluster,
                                            const NodeId& node) {
  const std::string machine = MachineOf(node);
  int64_t there = 0;
  RETURN_IF_ERROR(database.Query(sql, {cluster.value(), node.value(), machine}, [&](const SqlRow& row) {
    there += MachineOf(NodeId(row.Text(0))) == machine ? 1 : 0;
  }));
  return there;
}

// Where a volume may be shared, each instance could have it, and each has a target.
absl::Status RefuseIfManyInstances(SqlDatabase& database, const ClusterId& cluster, const NodeId& node) {
  ASSIGN_OR_RETURN(const int64_t there,
                   CountOtherInstances(database, OTHER_INSTANCES_IN("grants"), cluster, node));
  if (there < kMostInstances) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("node ", node.value(), ": ", there,
                                                   " other instances of its machine have volumes: fence "
                                                   "those that are gone"));
}

absl::Status RefuseIfFull(SqlDatabase& database, const ClusterId& cluster, const GrantRequest& request) {
  if (request.most == 0) return absl::OkStatus();
  int64_t has = 0;
  RETURN_IF_ERROR(database.Query("SELECT COUNT(*) FROM grants WHERE cluster = ?1 AND node = ?2",
                                 {cluster.value(), request.node.value()},
                                 [&](const SqlRow& row) { has = row.Integer(0); }));
  if (static_cast<uint64_t>(has) < request.most) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("volume ", request.volume.value(), ": node ",
                                                   request.node.value(), " has ", has,
                                                   " volumes, which is its limit: unpublish one first"));
}

// The one rule that this whole array is for. FindHeldGrant has kept it already; this is a second pair of eyes
// on the rows themselves, before the change is committed.
absl::Status CheckExclusiveIsAlone(SqlDatabase& database, const VolumeId& volume) {
  int64_t grants = 0;
  int64_t exclusive = 0;
  RETURN_IF_ERROR(
      database.Query("SELECT access FROM grants WHERE volume = ?1", {volume.value()}, [&](const SqlRow& row) {
        ++grants;
        if (row.Integer(0) == static_cast<int64_t>(Access::kExclusive)) ++exclusive;
      }));
  LK_CHECK(exclusive == 0 || grants == 1, "an exclusive grant excludes every other grant of its volume");
  return absl::OkStatus();
}

absl::StatusOr<GrantRow> InsertGrant(SqlDatabase& database, const ClusterId& cluster,
                                     const GrantRequest& request, const GrantSecrets& secrets,
                                     const std::vector<int>& tgtds) {
  ASSIGN_OR_RETURN(const std::optional<VolumeUses> uses, ReadUses(database, cluster, request.volume));
  if (!uses) {
    return absl::NotFoundError(absl::StrCat("volume ", request.volume.value(), ": there is no such volume"));
  }
  RETURN_IF_ERROR(SettleUses(database, request, *uses));
  RETURN_IF_ERROR(RefuseIfCopied(database, request.volume));
  RETURN_IF_ERROR(RefuseIfManyInstances(database, cluster, request.node));
  RETURN_IF_ERROR(RefuseIfFull(database, cluster, request));
  ASSIGN_OR_RETURN(const int64_t generation, TakeNextGeneration(database));
  // By turns. To count them would cost more than an even share is worth.
  const int tgtd = tgtds[static_cast<size_t>(generation) % tgtds.size()];
  RETURN_IF_ERROR(database
                      .Change("INSERT INTO grants(" GRANT_COLUMNS
                              ") VALUES(?1,?2,?3,?4,?5,?6,?7,0,?8,?9,?10)",
                              {generation, cluster.value(), request.volume.value(), request.node.value(),
                               static_cast<int64_t>(request.access), static_cast<int64_t>(request.owner),
                               secrets.node, request.node_uid, secrets.target, static_cast<int64_t>(tgtd)})
                      .status());
  RETURN_IF_ERROR(CheckExclusiveIsAlone(database, request.volume));
  return GrantRow{.cluster = cluster,
                  .volume = request.volume,
                  .node = request.node,
                  .access = request.access,
                  .owner = request.owner,
                  .generation = static_cast<Generation>(generation),
                  .secret = secrets.node,
                  .target_secret = secrets.target,
                  .releasing = false,
                  .node_uid = request.node_uid,
                  .tgtd = tgtd};
}

// Only a grant that was closed first can have been drained.
absl::Status CheckIsReleasing(SqlDatabase& database, Generation generation) {
  bool releasing = true;
  RETURN_IF_ERROR(database.Query("SELECT releasing FROM grants WHERE generation = ?1",
                                 {static_cast<int64_t>(generation)},
                                 [&](const SqlRow& row) { releasing = row.Integer(0) != 0; }));
  LK_CHECK(releasing, "a grant is deleted only after it was closed and drained");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<GrantRow>> GrantCatalogue::ReadGrants(const char* sql, SqlValues values) {
  std::vector<GrantRow> rows;
  RETURN_IF_ERROR(file_.ReadRows(sql, values, [&](const SqlRow& row) { rows.push_back(GrantFrom(row)); }));
  return rows;
}

absl::StatusOr<GrantRow> GrantCatalogue::AddGrant(const ClusterId& cluster, const GrantRequest& request,
                                                  const GrantSecrets& secrets,
                                                  const std::vector<int>& tgtds) {
  // The change runs on whichever thread leads the batch, so its result comes out through `granted`.
  absl::StatusOr<GrantRow> granted = absl::InternalError("not tried");
  const absl::Status written = file_.WriteChange([&](SqlDatabase& database) -> absl::Status {
    RETURN_IF_ERROR(RefuseIfFenced(database, cluster, request.node));
    ASSIGN_OR_RETURN(auto held, FindHeldGrant(database, cluster, request));
    granted = held.has_value() ? *std::move(held) : InsertGrant(database, cluster, request, secrets, tgtds);
    return granted.status();
  });
  RETURN_IF_ERROR(written);
  return granted;
}

absl::StatusOr<std::optional<GrantRow>> GrantCatalogue::FindGrant(const VolumeId& volume,
                                                                  const NodeId& node) {
  ASSIGN_OR_RETURN(auto rows,
                   ReadGrants("SELECT " GRANT_COLUMNS " FROM grants WHERE volume = ?1 AND node = ?2",
                              {volume.value(), node.value()}));
  if (rows.empty()) return std::optional<GrantRow>();
  return std::optional<GrantRow>(std::move(rows.front()));
}

absl::StatusOr<std::optional<GrantRow>> GrantCatalogue::FindGeneration(Generation generation) {
  ASSIGN_OR_RETURN(auto rows, ReadGrants("SELECT " GRANT_COLUMNS " FROM grants WHERE generation = ?1",
                                         {static_cast<int64_t>(generation)}));
  if (rows.empty()) return std::optional<GrantRow>();
  return std::optional<GrantRow>(std::move(rows.front()));
}

absl::StatusOr<Generation> GrantCatalogue::LastGeneration() {
  Generation last = 0;
  RETURN_IF_ERROR(file_.ReadRows("SELECT generation FROM meta", {},
                                 [&](const SqlRow& row) { last = static_cast<Generation>(row.Integer(0)); }));
  return last;
}

absl::StatusOr<std::vector<GrantRow>> GrantCatalogue::ListGrants(const ClusterId& cluster,
                                                                 const GrantFilter& filter) {
  if (!filter.volume.empty()) {
    return ReadGrants(
        "SELECT " GRANT_COLUMNS
        " FROM grants WHERE volume = ?1 AND cluster = ?2 AND (?3 = '' OR node = ?3) ORDER BY node",
        {filter.volume.value(), cluster.value(), filter.node.value()});
  }
  if (!filter.node.empty()) {
    return ReadGrants("SELECT " GRANT_COLUMNS " FROM grants WHERE cluster = ?1 AND node = ?2 ORDER BY volume",
                      {cluster.value(), filter.node.value()});
  }
  return ReadGrants("SELECT " GRANT_COLUMNS " FROM grants WHERE cluster = ?1 ORDER BY volume, node",
                    {cluster.value()});
}

absl::StatusOr<std::vector<GrantRow>> GrantCatalogue::ListAllGrants() {
  return ReadGrants("SELECT " GRANT_COLUMNS " FROM grants ORDER BY generation", {});
}

absl::StatusOr<std::shared_ptr<const GrantsByTarget>> GrantCatalogue::ListByTarget() {
  const absl::MutexLock lock(&kept_mu_);
  // Before the rows are read: what changes in between makes the next call read them again.
  const uint64_t sequence = file_.sequence();
  if (kept_ != nullptr && kept_sequence_ == sequence) return kept_;
  ASSIGN_OR_RETURN(std::vector<GrantRow> rows, ListAllGrants());
  auto by_target = std::make_shared<GrantsByTarget>();
  by_target->reserve(rows.size());
  for (GrantRow& row : rows) {
    const int32_t target = TargetNumber(row.generation);
    by_target->emplace(target, std::move(row));
  }
  kept_ = std::move(by_target);
  kept_sequence_ = sequence;
  return kept_;
}

absl::StatusOr<std::vector<GrantRow>> GrantCatalogue::ListReleasingGrants() {
  return ReadGrants("SELECT " GRANT_COLUMNS " FROM grants WHERE releasing = 1", {});
}

absl::StatusOr<std::vector<GrantRow>> GrantCatalogue::ListGrantsOfTgtd(int tgtd) {
  return ReadGrants("SELECT " GRANT_COLUMNS " FROM grants WHERE tgtd = ?1 ORDER BY generation",
                    {static_cast<int64_t>(tgtd)});
}

absl::StatusOr<int> GrantCatalogue::HighestTgtd() {
  int highest = 0;
  RETURN_IF_ERROR(file_.ReadRows("SELECT COALESCE(MAX(tgtd), 0) FROM grants", {},
                                 [&](const SqlRow& row) { highest = static_cast<int>(row.Integer(0)); }));
  return highest;
}

absl::Status GrantCatalogue::SetReleasing(Generation generation) {
  return file_.WriteChange([&](SqlDatabase& database) {
    return database
        .Change("UPDATE grants SET releasing = 1 WHERE generation = ?1", {static_cast<int64_t>(generation)})
        .status();
  });
}

absl::Status GrantCatalogue::DeleteGrants(const std::vector<Generation>& generations) {
  return file_.WriteChange([&](SqlDatabase& database) -> absl::Status {
    for (const Generation generation : generations) {
      RETURN_IF_ERROR(CheckIsReleasing(database, generation));
      RETURN_IF_ERROR(
          database.Change("DELETE FROM grants WHERE generation = ?1", {static_cast<int64_t>(generation)})
              .status());
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<GrantRow> GrantCatalogue::AddHeartbeatLun(const ClusterId& cluster, const NodeId& node,
                                                         const GrantSecrets& secrets) {
  GrantRow lun;
  const absl::Status written = file_.WriteChange([&](SqlDatabase& database) -> absl::Status {
    ASSIGN_OR_RETURN(const int64_t there,
                     CountOtherInstances(database, OTHER_INSTANCES_IN("heartbeat_luns"), cluster, node));
    if (there >= kMostHeartbeatLuns) {
      return absl::ResourceExhaustedError(
          absl::StrCat("node ", node.value(), ": its machine has ", there,
                       " heartbeat LUNs already; those that are not written to go after a week"));
    }
    ASSIGN_OR_RETURN(const int64_t generation, TakeNextGeneration(database));
    RETURN_IF_ERROR(database
                        .Change("INSERT OR IGNORE INTO heartbeat_luns(generation, cluster, node, secret, "
                                "target_secret) VALUES(?1, ?2, ?3, ?4, ?5)",
                                {generation, cluster.value(), node.value(), secrets.node, secrets.target})
                        .status());
    return database.Query(
        "SELECT " HEARTBEAT_LUN_COLUMNS " FROM heartbeat_luns WHERE cluster = ?1 AND node = ?2",
        {cluster.value(), node.value()}, [&](const SqlRow& row) { lun = HeartbeatLunFrom(row); });
  });
  RETURN_IF_ERROR(written);
  return lun;
}

absl::StatusOr<std::vector<GrantRow>> GrantCatalogue::ListAllHeartbeatLuns() {
  std::vector<GrantRow> rows;
  RETURN_IF_ERROR(file_.ReadRows("SELECT " HEARTBEAT_LUN_COLUMNS " FROM heartbeat_luns", {},
                                 [&](const SqlRow& row) { rows.push_back(HeartbeatLunFrom(row)); }));
  return rows;
}

absl::StatusOr<std::string> GrantCatalogue::SetSigningKey(Generation generation, const std::string& key) {
  std::string in_force;
  const absl::Status written = file_.WriteChange([&](SqlDatabase& database) -> absl::Status {
    // Two controllers may ask for the same node at once, and both have to hear the same key.
    RETURN_IF_ERROR(database
                        .Change("UPDATE heartbeat_luns SET signing_key = ?2 WHERE generation = ?1 AND "
                                "(?2 = '' OR signing_key = '')",
                                {static_cast<int64_t>(generation), key})
                        .status());
    return database.Query("SELECT signing_key FROM heartbeat_luns WHERE generation = ?1",
                          {static_cast<int64_t>(generation)},
                          [&](const SqlRow& row) { in_force = row.Text(0); });
  });
  RETURN_IF_ERROR(written);
  return in_force;
}

absl::Status GrantCatalogue::DeleteHeartbeatLun(Generation generation) {
  return file_.WriteChange([&](SqlDatabase& database) {
    return database
        .Change("DELETE FROM heartbeat_luns WHERE generation = ?1", {static_cast<int64_t>(generation)})
        .status();
  });
}

}  // namespace lunkeeper
