// One change decides and acts. AddGrant (grant_catalogue.cc) looks for the volume in the cluster of its
// caller, inside a change too; so a grant that the old cluster asks for at the same moment either comes
// first, and keeps the volumes where they are, or finds no such volume.
#include "devices/array/tgt/cluster_catalogue.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// An error names no more of them.
constexpr size_t kMostNamed = 10;

std::string NameSome(std::vector<std::string> all) {
  const size_t more = all.size() > kMostNamed ? all.size() - kMostNamed : 0;
  all.resize(all.size() - more);
  return absl::StrCat(absl::StrJoin(all, ", "), more == 0 ? "" : absl::StrCat(" and ", more, " more"));
}

// Also of another cluster's nodes, which there cannot be: a volume that anybody uses stays where it is.
absl::Status RefuseGranted(SqlDatabase& database, const ClusterId& from) {
  ASSIGN_OR_RETURN(
      const auto held,
      database.ReadTexts("SELECT volume || ' by node ' || node FROM grants WHERE cluster = ?1 OR volume IN "
                         "(SELECT id FROM volumes WHERE cluster = ?1) ORDER BY volume",
                         {from.value()}));
  if (held.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cluster ", from.value(), " still has volumes in use: ", NameSome(held),
                   ". Nothing was changed: stop their pods there, or end these grants with --fence"));
}

absl::Status RefuseCopied(SqlDatabase& database, const ClusterId& from) {
  ASSIGN_OR_RETURN(const auto copied,
                   database.ReadTexts("SELECT id FROM volumes WHERE copying = 1 AND cluster = ?1 UNION ALL "
                                      "SELECT id FROM snapshots WHERE copying = 1 AND cluster = ?1",
                                      {from.value()}));
  if (copied.empty()) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("cluster ", from.value(), ": ", NameSome(copied),
                                         " is being copied. Nothing was changed; try again"));
}

// The names are the orchestrator's keys: with two of one name it would be given the wrong one.
absl::Status RefuseSameNames(SqlDatabase& database, const ClusterId& from, const ClusterId& to) {
  std::vector<std::string> both;
  for (const char* sql : {"SELECT name FROM volumes WHERE cluster = ?1 AND name IN "
                          "(SELECT name FROM volumes WHERE cluster = ?2)",
                          "SELECT name FROM snapshots WHERE cluster = ?1 AND name IN "
                          "(SELECT name FROM snapshots WHERE cluster = ?2)",
                          "SELECT name FROM snapshot_groups WHERE cluster = ?1 AND name IN "
                          "(SELECT name FROM snapshot_groups WHERE cluster = ?2)"}) {
    ASSIGN_OR_RETURN(const auto names, database.ReadTexts(sql, {from.value(), to.value()}));
    both.insert(both.end(), names.begin(), names.end());
  }
  if (both.empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("clusters ", from.value(), " and ", to.value(), " both have ", NameSome(both),
                   ". Nothing was changed: delete those that are not needed, in the cluster that has them"));
}

absl::StatusOr<std::map<ClusterId, ClusterHoldings>> ReadHoldings(SqlDatabase& database) {
  std::map<ClusterId, ClusterHoldings> all;
  const auto count = [&](const char* sql, uint64_t ClusterHoldings::*counter) {
    return database.Query(sql, {}, [&](const SqlRow& row) {
      ClusterHoldings& holdings = all[ClusterId(row.Text(0))];
      holdings.*counter += static_cast<uint64_t>(row.Integer(1));
      holdings.size_bytes += static_cast<uint64_t>(row.Integer(2));
    });
  };
  RETURN_IF_ERROR(
      count("SELECT cluster, COUNT(*), SUM(size) FROM volumes GROUP BY cluster", &ClusterHoldings::volumes));
  RETURN_IF_ERROR(count("SELECT cluster, COUNT(*), SUM(size) FROM snapshots GROUP BY cluster",
                        &ClusterHoldings::snapshots));
  RETURN_IF_ERROR(
      count("SELECT cluster, COUNT(*), 0 FROM snapshot_groups GROUP BY cluster", &ClusterHoldings::groups));
  return all;
}

absl::Status CheckAll(SqlDatabase& database, const ClusterId& from, const ClusterId& to, bool grants_end) {
  if (!grants_end) RETURN_IF_ERROR(RefuseGranted(database, from));
  RETURN_IF_ERROR(RefuseCopied(database, from));
  return RefuseSameNames(database, from, to);
}

}  // namespace

absl::StatusOr<std::map<ClusterId, ClusterHoldings>> ClusterCatalogue::ListHoldings() {
  absl::StatusOr<std::map<ClusterId, ClusterHoldings>> all = absl::InternalError("not read");
  RETURN_IF_ERROR(file_.ReadTogether([&](SqlDatabase& database) {
    all = ReadHoldings(database);
    return all.status();
  }));
  return all;
}

absl::Status ClusterCatalogue::CheckReassignable(const ClusterId& from, const ClusterId& to,
                                                 bool grants_end) {
  return file_.ReadTogether([&](SqlDatabase& database) { return CheckAll(database, from, to, grants_end); });
}

absl::Status ClusterCatalogue::ReassignAll(const ClusterId& from, const ClusterId& to,
                                           const ClusterHoldings& expected) {
  return file_.WriteChange([&](SqlDatabase& database) -> absl::Status {
    RETURN_IF_ERROR(CheckAll(database, from, to, /*grants_end=*/false));
    ASSIGN_OR_RETURN(auto holdings, ReadHoldings(database));
    if (holdings[from] != expected)
      return absl::AbortedError(
          absl::StrCat("cluster ", from.value(),
                       " made or deleted something at this moment, so a controller of it runs. "
                       "Nothing was changed: stop it and try again"));
    for (const char* sql : {"UPDATE volumes SET cluster = ?2 WHERE cluster = ?1",
                            "UPDATE snapshots SET cluster = ?2 WHERE cluster = ?1",
                            "UPDATE snapshot_groups SET cluster = ?2 WHERE cluster = ?1"})
      RETURN_IF_ERROR(database.Change(sql, {from.value(), to.value()}).status());
    return absl::OkStatus();
  });
}

}  // namespace lunkeeper
