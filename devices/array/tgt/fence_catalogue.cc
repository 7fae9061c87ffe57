// Terms and fences as rows.
//
// A fence is stored before anything of it is done: the node is closed and its grants are marked in one
// change. The array then drains those grants; killed in between, it finds them marked at its next start and
// goes on (GrantTargets). A fence's row therefore says "closed", and that no grant of its volumes is left
// says "done".
#include "devices/array/tgt/fence_catalogue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/status_macros.h"
#include "devices/node_id.h"

namespace lunkeeper {
namespace {

// Only the newest term may fence. Term 0 is never in force: a cluster without a leader has begun none.
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

// Of this very id. 0: there is none.
absl::StatusOr<Generation> FenceInForce(SqlDatabase& database, const ClusterId& cluster, const NodeId& id) {
  Generation generation = 0;
  RETURN_IF_ERROR(database.Query(
      "SELECT generation FROM fences WHERE cluster = ?1 AND node = ?2", {cluster.value(), id.value()},
      [&](const SqlRow& row) { generation = static_cast<Generation>(row.Integer(0)); }));
  return generation;
}

absl::StatusOr<std::vector<FenceRecord>> ReadFences(SqlDatabase& database, const ClusterId& cluster) {
  std::map<NodeId, FenceRecord> fences;
  RETURN_IF_ERROR(
      database.Query("SELECT node, generation, term, node_uid, fenced_by, reason, fenced_at "
                     "FROM fences WHERE cluster = ?1",
                     {cluster.value()}, [&](const SqlRow& row) {
                       const NodeId node(row.Text(0));
                       fences[node] = {.node = node,
                                       .generation = static_cast<Generation>(row.Integer(1)),
                                       .term = static_cast<Term>(row.Integer(2)),
                                       .volumes = {},
                                       .node_uid = row.Text(3),
                                       .fenced_by = row.Text(4),
                                       .reason = row.Text(5),
                                       .fenced_at = absl::FromUnixNanos(row.Integer(6))};
                     }));
  RETURN_IF_ERROR(database.Query(
      "SELECT node, volume FROM fenced_volumes WHERE cluster = ?1 ORDER BY volume", {cluster.value()},
      [&](const SqlRow& row) { fences[NodeId(row.Text(0))].volumes.emplace_back(row.Text(1)); }));
  std::vector<FenceRecord> out;
  for (auto& [node, fence] : fences) out.push_back(std::move(fence));
  return out;
}

// What a caller leaves empty stays as it is: a leader that continues a fence need not know who began
// it.
absl::Status WriteReason(SqlDatabase& database, const ClusterId& cluster, const FenceRequest& request) {
  if (!request.node_uid.empty()) {
    RETURN_IF_ERROR(database
                        .Change("UPDATE fences SET node_uid = ?3 WHERE cluster = ?1 AND node = ?2",
                                {cluster.value(), request.node.value(), request.node_uid})
                        .status());
  }
  if (request.fenced_by.empty() && request.reason.empty()) return absl::OkStatus();
  // The same caller with the same reason repeats its call, and the time stays that of the first.
  return database
      .Change(
          "UPDATE fences SET fenced_by = ?3, reason = ?4, fenced_at = ?5 WHERE cluster = ?1 AND "
          "node = ?2 AND (fenced_by <> ?3 OR reason <> ?4)",
          {cluster.value(), request.node.value(), request.fenced_by, request.reason,
           absl::ToUnixNanos(absl::Now())})
      .status();
}

// The nodes with grants that a fence of `id` is about: itself, or those of the machine that it names.
absl::StatusOr<std::vector<NodeId>> FencedNodes(SqlDatabase& database, const ClusterId& cluster,
                                                const NodeId& id) {
  if (!IsMachineId(id)) return std::vector<NodeId>{id};
  std::vector<NodeId> nodes;
  RETURN_IF_ERROR(database.Query("SELECT DISTINCT node FROM grants WHERE cluster = ?1", {cluster.value()},
                                 [&](const SqlRow& row) {
                                   NodeId node(row.Text(0));
                                   if (IsIdFor(id, node)) nodes.push_back(std::move(node));
                                 }));
  return nodes;
}

// The last statement marks the grants of all volumes ever listed in this fence, so that repeating a fence
// also catches a grant that an earlier, interrupted call has left.
absl::Status MarkGrants(SqlDatabase& database, const ClusterId& cluster, const FenceRequest& request) {
  const std::string& fenced = request.node.value();
  for (const VolumeId& volume : request.volumes) {
    RETURN_IF_ERROR(database
                        .Change("INSERT OR IGNORE INTO fenced_volumes VALUES(?1, ?2, ?3)",
                                {cluster.value(), fenced, volume.value()})
                        .status());
  }
  ASSIGN_OR_RETURN(const auto nodes, FencedNodes(database, cluster, request.node));
  for (const NodeId& node : nodes) {
    if (request.all_volumes) {
      RETURN_IF_ERROR(database
                          .Change("INSERT OR IGNORE INTO fenced_volumes SELECT ?1, ?2, volume FROM grants "
                                  "WHERE cluster = ?1 AND node = ?3",
                                  {cluster.value(), fenced, node.value()})
                          .status());
    }
    RETURN_IF_ERROR(database
                        .Change("UPDATE grants SET releasing = 1 WHERE cluster = ?1 AND node = ?3 AND volume "
                                "IN (SELECT volume FROM fenced_volumes WHERE cluster = ?1 AND node = ?2)",
                                {cluster.value(), fenced, node.value()})
                        .status());
  }
  return absl::OkStatus();
}

// The parts of a fence in one change: the node is closed, the reason is kept, the volumes are listed, the
// grants are marked.
absl::Status WriteFence(SqlDatabase& database, const ClusterId& cluster, Term term,
                        const FenceRequest& request) {
  const std::string& node = request.node.value();
  RETURN_IF_ERROR(CheckTerm(database, cluster, term));
  ASSIGN_OR_RETURN(const Generation in_force, FenceInForce(database, cluster, request.node));
  // A fence in force keeps its generation when it is repeated: the caller may know it already.
  if (in_force == 0) {
    ASSIGN_OR_RETURN(const int64_t generation, TakeNextGeneration(database));
    RETURN_IF_ERROR(database
                        .Change("INSERT INTO fences(cluster, node, generation, term, fenced_at) "
                                "VALUES(?1, ?2, ?3, ?4, ?5)",
                                {cluster.value(), node, generation, static_cast<int64_t>(term),
                                 absl::ToUnixNanos(absl::Now())})
                        .status());
  }
  RETURN_IF_ERROR(database
                      .Change("UPDATE fences SET term = ?3 WHERE cluster = ?1 AND node = ?2",
                              {cluster.value(), node, static_cast<int64_t>(term)})
                      .status());
  RETURN_IF_ERROR(WriteReason(database, cluster, request));
  return MarkGrants(database, cluster, request);
}

}  // namespace

absl::Status RefuseIfFenced(SqlDatabase& database, const ClusterId& cluster, const NodeId& node) {
  for (const NodeId& id : {node, MachineId(MachineOf(node))}) {
    ASSIGN_OR_RETURN(const Generation generation, FenceInForce(database, cluster, id));
    if (generation == 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("node ", node.value(), ": ", id == node ? "it" : "its machine",
                     " is fenced since generation ", generation, "; it gets no volume until it is unfenced"));
  }
  return absl::OkStatus();
}

// One statement counts up, so two leaders that begin a term at the same moment get different ones and the
// later one is in force.
absl::StatusOr<Term> FenceCatalogue::BeginTerm(const ClusterId& cluster, const std::string& holder) {
  int64_t term = 0;
  const absl::Status written = file_.WriteChange([&](SqlDatabase& database) -> absl::Status {
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

absl::StatusOr<FenceRecord> FenceCatalogue::AddFence(const ClusterId& cluster, Term term,
                                                     const FenceRequest& request) {
  FenceRecord record;
  const absl::Status written = file_.WriteChange([&](SqlDatabase& database) -> absl::Status {
    RETURN_IF_ERROR(WriteFence(database, cluster, term, request));
    ASSIGN_OR_RETURN(const std::vector<FenceRecord> fences, ReadFences(database, cluster));
    for (const FenceRecord& fence : fences) {
      if (fence.node == request.node) record = fence;
    }
    return absl::OkStatus();
  });
  RETURN_IF_ERROR(written);
  FAIL_POINT("array.fence.stored");
  return record;
}

absl::Status FenceCatalogue::RemoveFence(const ClusterId& cluster, Term term, const NodeId& node,
                                         Generation generation) {
  return file_.WriteChange([&](SqlDatabase& database) -> absl::Status {
    RETURN_IF_ERROR(CheckTerm(database, cluster, term));
    ASSIGN_OR_RETURN(const Generation current, FenceInForce(database, cluster, node));
    if (current == 0) return absl::OkStatus();
    // A late unfence, of an earlier fence of the same node, must not lift this one.
    if (current != generation) {
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

absl::StatusOr<std::vector<FenceRecord>> FenceCatalogue::ListFences(const ClusterId& cluster) {
  std::vector<FenceRecord> fences;
  const absl::Status read = file_.ReadTogether([&](SqlDatabase& database) -> absl::Status {
    ASSIGN_OR_RETURN(fences, ReadFences(database, cluster));
    return absl::OkStatus();
  });
  RETURN_IF_ERROR(read);
  return fences;
}

absl::StatusOr<std::map<ClusterId, std::vector<FenceRecord>>> FenceCatalogue::ListAllFences() {
  std::map<ClusterId, std::vector<FenceRecord>> all;
  const absl::Status read = file_.ReadTogether([&](SqlDatabase& database) -> absl::Status {
    RETURN_IF_ERROR(database.Query("SELECT DISTINCT cluster FROM fences", {},
                                   [&](const SqlRow& row) { all[ClusterId(row.Text(0))]; }));
    for (auto& [cluster, fences] : all) {
      ASSIGN_OR_RETURN(fences, ReadFences(database, cluster));
    }
    return absl::OkStatus();
  });
  RETURN_IF_ERROR(read);
  return all;
}

absl::Status FenceCatalogue::CheckNotFenced(const ClusterId& cluster, const NodeId& node) {
  return file_.ReadTogether([&](SqlDatabase& database) { return RefuseIfFenced(database, cluster, node); });
}

}  // namespace lunkeeper
