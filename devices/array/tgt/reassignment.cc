// The order: what can be refused is refused; grants are ended; every object of the old cluster is locked,
// since a call that found it there (a deletion, a growth) may still be about to change it by its id alone,
// and its name, since one that makes it looks for it by its cluster before it ends; then one change of the
// catalogue does it.
//
// What may go on meanwhile, and why it does no harm:
//   a grant is asked for      AddGrant and the change exclude each other (cluster_catalogue.cc)
//   a volume is deleted       it has its lock, so this is ABORTED; or it comes later and finds nothing
//   a volume is made          its name has its lock, or the change sees one more, so this is ABORTED; or it
//                             is made later, for the old cluster, which keeps it; but not as a copy of what
//                             has gone (InsertVolume)
//   this process is killed    before the change nothing is done but fences, after it all
// Heartbeat LUNs stay the old cluster's: its nodes have them until nobody writes to them for a week.
#include "devices/array/tgt/reassignment.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/array/tgt/tgt_fences.h"
#include "devices/array/tgt/tgt_parts.h"

namespace lunkeeper {
namespace {

absl::StatusOr<ClusterHoldings> FindHoldings(const TgtParts& parts, const ClusterId& cluster) {
  ASSIGN_OR_RETURN(const auto all, parts.catalogue.clusters().ListHoldings());
  if (const auto found = all.find(cluster); found != all.end()) return found->second;
  std::vector<std::string> others;
  for (const auto& [other, holdings] : all)
    others.push_back(
        absl::StrCat(other.value(), " (", holdings.volumes, " volumes, ", holdings.snapshots, " snapshots)"));
  return absl::NotFoundError(absl::StrCat("array ", parts.options.name, " has nothing of cluster ",
                                          cluster.value(), "; it has something of ",
                                          others.empty() ? "no cluster" : absl::StrJoin(others, ", ")));
}

absl::StatusOr<std::set<NodeId>> ListHoldersOf(const TgtParts& parts, const ClusterId& cluster) {
  ASSIGN_OR_RETURN(const auto grants, parts.catalogue.grants().ListGrants(cluster, {}));
  std::set<NodeId> nodes;
  for (const GrantRow& grant : grants) nodes.insert(grant.node);
  return nodes;
}

// A new term: what the old cluster's leader asks for with its own is refused from here on.
absl::Status FenceAll(const TgtParts& parts, const Reassignment& asked, const std::set<NodeId>& nodes) {
  TgtFences fences(parts, asked.from);
  ASSIGN_OR_RETURN(const Term term, fences.BeginTerm(asked.asked_by));
  for (const NodeId& node : nodes)
    RETURN_IF_ERROR(
        fences
            .FenceNode(term, {.node = node,
                              .fenced_by = asked.asked_by,
                              .reason = absl::StrCat("its volumes go to cluster ", asked.to.value()),
                              .all_volumes = true})
            .status());
  return absl::OkStatus();
}

// Nobody waits for a lock here, so two of these calls at once are refused rather than stuck.
absl::StatusOr<std::vector<KeyedLock::Guard>> LockAll(const TgtParts& parts, const ClusterId& cluster) {
  std::set<std::string> names;
  const auto add = [&](const char* kind, const std::string& id, const std::string& name) {
    names.insert(absl::StrCat(kind, " ", id));
    names.insert(absl::StrCat(kind, " ", cluster.value(), "/", name));
  };
  ASSIGN_OR_RETURN(const auto volumes, parts.catalogue.volumes().ListAllVolumes());
  for (const VolumeRow& row : volumes)
    if (row.cluster == cluster) add("volume", row.volume.id.value(), row.volume.spec.name);
  ASSIGN_OR_RETURN(const auto snapshots, parts.catalogue.volumes().ListAllSnapshots());
  for (const SnapshotRow& row : snapshots) {
    if (row.cluster != cluster) continue;
    add("snapshot", row.snapshot.id.value(), row.snapshot.name);
    const std::string& group = row.snapshot.group.value();
    if (!group.empty()) names.insert(absl::StrCat("snapshot group ", group));
  }
  std::vector<KeyedLock::Guard> guards;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(auto guard, LockObject(parts, name));
    guards.push_back(std::move(guard));
  }
  return guards;
}

}  // namespace

absl::StatusOr<Reassigned> ReassignCluster(const TgtParts& parts, const Reassignment& asked) {
  RETURN_IF_ERROR(parts.check_serving());
  if (asked.from == asked.to || asked.to.empty())
    return absl::InvalidArgumentError("reassign: name the cluster that has the volumes, and another one");
  Reassigned done;
  // Before the locks: what comes or goes from here on is noticed by the change.
  ASSIGN_OR_RETURN(done.holdings, FindHoldings(parts, asked.from));
  ClusterCatalogue& clusters = parts.catalogue.clusters();
  RETURN_IF_ERROR(clusters.CheckReassignable(asked.from, asked.to, asked.end_grants));
  if (asked.end_grants) {
    ASSIGN_OR_RETURN(const auto holders, ListHoldersOf(parts, asked.from));
    done.fenced.assign(holders.begin(), holders.end());
    if (!asked.only_check && !holders.empty()) RETURN_IF_ERROR(FenceAll(parts, asked, holders));
  }
  if (asked.only_check) return done;
  ASSIGN_OR_RETURN(const auto guards, LockAll(parts, asked.from));
  RETURN_IF_ERROR(clusters.ReassignAll(asked.from, asked.to, done.holdings));
  parts.RememberSequence();
  LogInfo("array", "a cluster's volumes are another one's",
          {{"from", asked.from.value()},
           {"to", asked.to.value()},
           {"volumes", absl::StrCat(done.holdings.volumes)},
           {"snapshots", absl::StrCat(done.holdings.snapshots)}});
  return done;
}

}  // namespace lunkeeper
