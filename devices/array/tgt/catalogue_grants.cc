// The catalogue's grants, fences and terms.

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fail_point.h"
#include "base/status_macros.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/node_id.h"

namespace lunkeeper {
namespace {

#define GRANT_COLUMNS "generation, cluster, volume, node, access, owner, secret, releasing"

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
  return out;
}

// As a grant's.
#define HEARTBEAT_LUN_COLUMNS "generation, cluster, 'heartbeat', node, 0, 0, secret, 0"
// Of one machine: it is set up anew now and then, and must not fill the array by claiming to be.
constexpr int64_t kMostHeartbeatLuns = 16;

absl::StatusOr<int64_t> NextGeneration(SqlDatabase& database) {
  int64_t generation = 0;
  RETURN_IF_ERROR(database.Change("UPDATE meta SET generation = generation + 1", {}).status());
  RETURN_IF_ERROR(database.Query("SELECT generation FROM meta", {},
                                 [&](const SqlRow& row) { generation = row.Integer(0); }));
  return generation;
}

absl::Status CheckTerm(SqlDatabase& database, const ClusterId& cluster, Term term) {
  int64_t current = 0;
  std::string holder;
  RETURN_IF_ERROR(database.Query("SELECT term, holder FROM terms WHERE cluster = ?1", {cluster.value()},
                                 [&](const SqlRow& row) {
                                   current = row.Integer(0);
                                   holder = row.Text(1);
                                 }));
  if (static_cast<int64_t>(term) == current && current != 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("term ", term, " is not in force: the array is in term ",
                                                    current, ", begun by '", holder, "'; begin a new term"));
}

absl::Status RefuseIfFenced(SqlDatabase& database, const ClusterId& cluster, const NodeId& node) {
  int64_t generation = 0;
  RETURN_IF_ERROR(database.Query("SELECT generation FROM fences WHERE cluster = ?1 AND node = ?2",
                                 {cluster.value(), node.value()},
                                 [&](const SqlRow& row) { generation = row.Integer(0); }));
  if (generation == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("node ", node.value(), ": it is fenced since generation ",
                                                    generation, "; it gets no volume until it is unfenced"));
}

bool GoTogether(Access a, Access b) { return a != Access::kExclusive && b != Access::kExclusive; }

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
absl::StatusOr<std::optional<GrantRow>> Holding(SqlDatabase& database, const ClusterId& cluster,
                                                const GrantRequest& request) {
  std::vector<GrantRow> rows;
  RETURN_IF_ERROR(database.Query("SELECT " GRANT_COLUMNS " FROM grants WHERE volume = ?1",
                                 {request.volume.value()},
                                 [&](const SqlRow& row) { rows.push_back(GrantFrom(row)); }));
  const std::string volume = absl::StrCat("volume ", request.volume.value());
  for (GrantRow& row : rows) {
    const bool own = row.node == request.node && row.cluster == cluster;
    if (own && !row.releasing && row.access == request.access) return std::optional<GrantRow>(std::move(row));
    if (own && !row.releasing) {
      return absl::FailedPreconditionError(
          absl::StrCat(volume, ": node ", row.node.value(), " has it with another access; release it first"));
    }
    if (!own && GoTogether(row.access, request.access)) continue;
    return absl::AbortedError(absl::StrCat(volume, ": it is ",
                                           row.releasing ? "still being released by" : "held by", " node ",
                                           row.node.value()));
  }
  return std::optional<GrantRow>();
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

absl::StatusOr<GrantRow> Insert(SqlDatabase& database, const ClusterId& cluster, const GrantRequest& request,
                                const std::string& secret) {
  bool known = false;
  RETURN_IF_ERROR(database.Query("SELECT 1 FROM volumes WHERE id = ?1 AND cluster = ?2",
                                 {request.volume.value(), cluster.value()},
                                 [&](const SqlRow&) { known = true; }));
  if (!known) {
    return absl::NotFoundError(absl::StrCat("volume ", request.volume.value(), ": there is no such volume"));
  }
  RETURN_IF_ERROR(RefuseIfCopied(database, request.volume));
  RETURN_IF_ERROR(RefuseIfFull(database, cluster, request));
  ASSIGN_OR_RETURN(const int64_t generation, NextGeneration(database));
  RETURN_IF_ERROR(
      database
          .Change("INSERT INTO grants(" GRANT_COLUMNS ") VALUES(?1,?2,?3,?4,?5,?6,?7,0)",
                  {generation, cluster.value(), request.volume.value(), request.node.value(),
                   static_cast<int64_t>(request.access), static_cast<int64_t>(request.owner), secret})
          .status());
  return GrantRow{.cluster = cluster,
                  .volume = request.volume,
                  .node = request.node,
                  .access = request.access,
                  .owner = request.owner,
                  .generation = static_cast<Generation>(generation),
                  .secret = secret,
                  .releasing = false};
}

absl::StatusOr<std::vector<FenceRecord>> ReadFences(SqlDatabase& database, const ClusterId& cluster) {
  std::map<NodeId, FenceRecord> fences;
  RETURN_IF_ERROR(database.Query("SELECT node, generation, term FROM fences WHERE cluster = ?1",
                                 {cluster.value()}, [&](const SqlRow& row) {
                                   const NodeId node(row.Text(0));
                                   fences[node] = {.node = node,
                                                   .generation = static_cast<Generation>(row.Integer(1)),
                                                   .term = static_cast<Term>(row.Integer(2)),
                                                   .volumes = {}};
                                 }));
  RETURN_IF_ERROR(database.Query(
      "SELECT node, volume FROM fenced_volumes WHERE cluster = ?1 ORDER BY volume", {cluster.value()},
      [&](const SqlRow& row) { fences[NodeId(row.Text(0))].volumes.emplace_back(row.Text(1)); }));
  std::vector<FenceRecord> out;
  for (auto& [node, fence] : fences) out.push_back(std::move(fence));
  return out;
}

absl::Status RecordFence(SqlDatabase& database, const ClusterId& cluster, Term term, const NodeId& node,
                         const std::vector<VolumeId>& volumes) {
  RETURN_IF_ERROR(CheckTerm(database, cluster, term));
  const absl::Status fenced = RefuseIfFenced(database, cluster, node);
  if (!fenced.ok() && !absl::IsFailedPrecondition(fenced)) return fenced;
  if (fenced.ok()) {
    ASSIGN_OR_RETURN(const int64_t generation, NextGeneration(database));
    RETURN_IF_ERROR(database
                        .Change("INSERT INTO fences VALUES(?1, ?2, ?3, ?4)",
                                {cluster.value(), node.value(), generation, static_cast<int64_t>(term)})
                        .status());
  }
  RETURN_IF_ERROR(database
                      .Change("UPDATE fences SET term = ?3 WHERE cluster = ?1 AND node = ?2",
                              {cluster.value(), node.value(), static_cast<int64_t>(term)})
                      .status());
  for (const VolumeId& volume : volumes) {
    RETURN_IF_ERROR(database
                        .Change("INSERT OR IGNORE INTO fenced_volumes VALUES(?1, ?2, ?3)",
                                {cluster.value(), node.value(), volume.value()})
                        .status());
  }
  return database
      .Change(
          "UPDATE grants SET releasing = 1 WHERE cluster = ?1 AND node = ?2 AND volume IN "
          "(SELECT volume FROM fenced_volumes WHERE cluster = ?1 AND node = ?2)",
          {cluster.value(), node.value()})
      .status();
}

}  // namespace

absl::StatusOr<std::vector<GrantRow>> Catalogue::ReadGrants(const char* sql, SqlValues values) {
  std::vector<GrantRow> rows;
  RETURN_IF_ERROR(Read(sql, values, [&](const SqlRow& row) { rows.push_back(GrantFrom(row)); }));
  return rows;
}

absl::StatusOr<GrantRow> Catalogue::AddGrant(const ClusterId& cluster, const GrantRequest& request,
                                             const std::string& secret) {
  absl::StatusOr<GrantRow> granted = absl::InternalError("not tried");
  const absl::Status written = Write([&](SqlDatabase& database) -> absl::Status {
    RETURN_IF_ERROR(RefuseIfFenced(database, cluster, request.node));
    ASSIGN_OR_RETURN(auto held, Holding(database, cluster, request));
    granted = held.has_value() ? *std::move(held) : Insert(database, cluster, request, secret);
    return granted.status();
  });
  RETURN_IF_ERROR(written);
  return granted;
}

absl::StatusOr<std::optional<GrantRow>> Catalogue::FindGrant(const VolumeId& volume, const NodeId& node) {
  ASSIGN_OR_RETURN(auto rows,
                   ReadGrants("SELECT " GRANT_COLUMNS " FROM grants WHERE volume = ?1 AND node = ?2",
                              {volume.value(), node.value()}));
  if (rows.empty()) return std::optional<GrantRow>();
  return std::optional<GrantRow>(std::move(rows.front()));
}

absl::StatusOr<std::optional<GrantRow>> Catalogue::FindGeneration(Generation generation) {
  ASSIGN_OR_RETURN(auto rows, ReadGrants("SELECT " GRANT_COLUMNS " FROM grants WHERE generation = ?1",
                                         {static_cast<int64_t>(generation)}));
  if (rows.empty()) return std::optional<GrantRow>();
  return std::optional<GrantRow>(std::move(rows.front()));
}

absl::StatusOr<std::vector<GrantRow>> Catalogue::ListGrants(const ClusterId& cluster,
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

absl::StatusOr<std::vector<GrantRow>> Catalogue::AllGrants() {
  return ReadGrants("SELECT " GRANT_COLUMNS " FROM grants ORDER BY generation", {});
}

absl::StatusOr<std::vector<GrantRow>> Catalogue::GrantsBeingReleased() {
  return ReadGrants("SELECT " GRANT_COLUMNS " FROM grants WHERE releasing = 1", {});
}

absl::Status Catalogue::SetReleasing(Generation generation) {
  return Write([&](SqlDatabase& database) {
    return database
        .Change("UPDATE grants SET releasing = 1 WHERE generation = ?1", {static_cast<int64_t>(generation)})
        .status();
  });
}

absl::Status Catalogue::DeleteGrants(const std::vector<Generation>& generations) {
  return Write([&](SqlDatabase& database) -> absl::Status {
    for (const Generation generation : generations) {
      RETURN_IF_ERROR(
          database.Change("DELETE FROM grants WHERE generation = ?1", {static_cast<int64_t>(generation)})
              .status());
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<GrantRow> Catalogue::AddHeartbeatLun(const ClusterId& cluster, const NodeId& node,
                                                    const std::string& secret) {
  const std::string machine = MachineOf(node);
  GrantRow lun;
  const absl::Status written = Write([&](SqlDatabase& database) -> absl::Status {
    int64_t there = 0;
    RETURN_IF_ERROR(database.Query(
        "SELECT COUNT(*) FROM heartbeat_luns WHERE cluster = ?1 AND node <> ?2 AND node > ?3 || '.' AND node "
        "< ?3 "
        "|| '/'",
        {cluster.value(), node.value(), machine}, [&](const SqlRow& row) { there = row.Integer(0); }));
    if (there >= kMostHeartbeatLuns) {
      return absl::ResourceExhaustedError(
          absl::StrCat("node ", node.value(), ": its machine has ", there,
                       " heartbeat LUNs already; those that are not written to go after a week"));
    }
    ASSIGN_OR_RETURN(const int64_t generation, NextGeneration(database));
    RETURN_IF_ERROR(database
                        .Change("INSERT OR IGNORE INTO heartbeat_luns VALUES(?1, ?2, ?3, ?4)",
                                {generation, cluster.value(), node.value(), secret})
                        .status());
    return database.Query("SELECT " HEARTBEAT_LUN_COLUMNS
                          " FROM heartbeat_luns WHERE cluster = ?1 AND node = ?2",
                          {cluster.value(), node.value()}, [&](const SqlRow& row) { lun = GrantFrom(row); });
  });
  RETURN_IF_ERROR(written);
  return lun;
}

absl::StatusOr<std::vector<GrantRow>> Catalogue::AllHeartbeatLuns() {
  return ReadGrants("SELECT " HEARTBEAT_LUN_COLUMNS " FROM heartbeat_luns", {});
}

absl::Status Catalogue::DeleteHeartbeatLun(Generation generation) {
  return Write([&](SqlDatabase& database) {
    return database
        .Change("DELETE FROM heartbeat_luns WHERE generation = ?1", {static_cast<int64_t>(generation)})
        .status();
  });
}

absl::StatusOr<Term> Catalogue::BeginTerm(const ClusterId& cluster, const std::string& holder) {
  int64_t term = 0;
  const absl::Status written = Write([&](SqlDatabase& database) -> absl::Status {
    RETURN_IF_ERROR(database
                        .Change("INSERT INTO terms VALUES(?1, 1, ?2) "
                                "ON CONFLICT(cluster) DO UPDATE SET term = term + 1, holder = ?2",
                                {cluster.value(), holder})
                        .status());
    return database.Query("SELECT term FROM terms WHERE cluster = ?1", {cluster.value()},
                          [&](const SqlRow& row) { term = row.Integer(0); });
  });
  RETURN_IF_ERROR(written);
  return static_cast<Term>(term);
}

absl::StatusOr<FenceRecord> Catalogue::Fence(const ClusterId& cluster, Term term, const NodeId& node,
                                             const std::vector<VolumeId>& volumes) {
  FenceRecord record;
  const absl::Status written = Write([&](SqlDatabase& database) -> absl::Status {
    RETURN_IF_ERROR(RecordFence(database, cluster, term, node, volumes));
    ASSIGN_OR_RETURN(const std::vector<FenceRecord> fences, ReadFences(database, cluster));
    for (const FenceRecord& fence : fences) {
      if (fence.node == node) record = fence;
    }
    return absl::OkStatus();
  });
  RETURN_IF_ERROR(written);
  FAIL_POINT("array.fence.stored");
  return record;
}

absl::Status Catalogue::Unfence(const ClusterId& cluster, Term term, const NodeId& node,
                                Generation generation) {
  return Write([&](SqlDatabase& database) -> absl::Status {
    RETURN_IF_ERROR(CheckTerm(database, cluster, term));
    int64_t current = 0;
    RETURN_IF_ERROR(database.Query("SELECT generation FROM fences WHERE cluster = ?1 AND node = ?2",
                                   {cluster.value(), node.value()},
                                   [&](const SqlRow& row) { current = row.Integer(0); }));
    if (current == 0) return absl::OkStatus();
    if (static_cast<Generation>(current) != generation) {
      return absl::FailedPreconditionError(absl::StrCat(
          "unfence node ", node.value(), ": the fence in force is ", current, ", not ", generation));
    }
    RETURN_IF_ERROR(database
                        .Change("DELETE FROM fenced_volumes WHERE cluster = ?1 AND node = ?2",
                                {cluster.value(), node.value()})
                        .status());
    return database
        .Change("DELETE FROM fences WHERE cluster = ?1 AND node = ?2", {cluster.value(), node.value()})
        .status();
  });
}

absl::StatusOr<std::vector<FenceRecord>> Catalogue::ListFences(const ClusterId& cluster) {
  const absl::MutexLock lock(&read_mu_);
  return ReadFences(*reader_, cluster);
}

absl::StatusOr<std::map<ClusterId, std::vector<FenceRecord>>> Catalogue::AllFences() {
  std::map<ClusterId, std::vector<FenceRecord>> all;
  const absl::MutexLock lock(&read_mu_);
  RETURN_IF_ERROR(reader_->Query("SELECT DISTINCT cluster FROM fences", {},
                                 [&](const SqlRow& row) { all[ClusterId(row.Text(0))]; }));
  for (auto& [cluster, fences] : all) {
    ASSIGN_OR_RETURN(fences, ReadFences(*reader_, cluster));
  }
  return all;
}

absl::Status Catalogue::CheckNotFenced(const ClusterId& cluster, const NodeId& node) {
  const absl::MutexLock lock(&read_mu_);
  return RefuseIfFenced(*reader_, cluster, node);
}

}  // namespace lunkeeper
