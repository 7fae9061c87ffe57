// The order of a removal, on the calling thread:
//
//   look      who uses the array; without force, anybody ends it here
//   record    from here on it is removed, whatever becomes of this call
//   pods      the pods that use it are deleted, with their own grace periods; killed here, the caller repeats
//
// The look is not a lock: a pod that begins to use a volume just then gets I/O errors, as it would have
// a moment later.
#include "fencing/failover/array_removal.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/node_id.h"
#include "fencing/failover/removal_record.h"

namespace lunkeeper::fencing {
namespace {

// An error names no more of them.
constexpr size_t kMostNamed = 20;

std::string DescribeUse(const VolumeUse& use) {
  std::vector<std::string> pods;
  for (const auto& [pod, uid] : use.pods) pods.push_back(pod.value());
  return absl::StrCat(use.volume.value(), " by node ", use.node.value(),
                      pods.empty() ? "" : absl::StrCat(" (", absl::StrJoin(pods, ", "), ")"));
}

absl::Status RefuseUsed(const std::string& array, const std::vector<VolumeUse>& uses) {
  std::vector<std::string> named;
  for (const VolumeUse& use : uses)
    if (named.size() < kMostNamed) named.push_back(DescribeUse(use));
  if (uses.size() > named.size()) named.push_back(absl::StrCat(uses.size() - named.size(), " more"));
  return absl::FailedPreconditionError(absl::StrCat(
      "array ", array, " is used: ", absl::StrJoin(named, "; "),
      ". End these pods first, or use --force: it deletes them and ends their I/O. Nothing was changed"));
}

}  // namespace

absl::StatusOr<std::vector<VolumeUse>> ArrayRemoval::RemoveArray(const RemoveArrayRequest& request,
                                                                 absl::Time deadline) {
  ASSIGN_OR_RETURN(std::vector<VolumeUse> uses, failover_.ListUses(request.array));
  const bool removed = arrays_.IsRemoved(request.array);
  if (!removed && uses.empty() && FindArray(arrays_.configured(), request.array) == nullptr)
    return absl::NotFoundError(absl::StrCat(
        "there is no array ", request.array, "; there are ",
        absl::StrJoin(arrays_.ListArrays(), ", ",
                      [](std::string* out, const NamedArray& array) { out->append(array.name); })));
  if (!removed && !request.force && !uses.empty()) return RefuseUsed(request.array, uses);
  RETURN_IF_ERROR(StoreRemoval(client_, space_, request.array, request.by, deadline));
  LogWarn("failover", "an array is removed",
          {{"array", request.array}, {"by", request.by}, {"uses", absl::StrCat(uses.size())}});
  if (request.force) RETURN_IF_ERROR(DeletePods(uses, deadline));
  return uses;
}

// All are tried, whatever becomes of one: each holds its own volumes alone.
absl::Status ArrayRemoval::DeletePods(const std::vector<VolumeUse>& uses, absl::Time deadline) {
  std::map<PodId, Uid> pods;
  for (const VolumeUse& use : uses) pods.insert(use.pods.begin(), use.pods.end());
  absl::Status worst;
  for (const auto& [pod, uid] : pods) {
    const size_t slash = pod.value().find('/');
    const absl::Status deleted =
        client_.Delete({kube::kPods, pod.value().substr(0, slash), pod.value().substr(slash + 1)},
                       {.uid = uid.value()}, std::nullopt, {deadline});
    // ABORTED: another pod has that name now.
    if (deleted.ok() || absl::IsNotFound(deleted) || absl::IsAborted(deleted)) continue;
    worst = absl::Status(deleted.code(),
                         absl::StrCat("the array is removed, but pod ", pod.value(),
                                      " could not be deleted: ", deleted.message(), ". Repeat the command"));
  }
  return worst;
}

absl::Status ArrayRemoval::AddArray(const std::string& name, absl::Time deadline) {
  const std::shared_ptr<Array> array = FindArray(arrays_.configured(), name);
  if (array == nullptr)
    return absl::NotFoundError(
        absl::StrCat("array ", name,
                     " is not configured: add it to the arrays file (in the chart: arrays, "
                     "localArrays) first"));
  RETURN_IF_ERROR(arrays_.CheckKnown());
  if (arrays_.IsRemoved(name)) RETURN_IF_ERROR(ReleaseUnusedGrants(name, array->grants()));
  RETURN_IF_ERROR(EraseRemoval(client_, space_, name, deadline));
  LogInfo("failover", "an array is added back", {{"array", name}});
  return absl::OkStatus();
}

// While it is removed nobody acquires anything there, so a grant without a device is nobody's. Of a node that
// is not heard nothing is known: it may have its volumes still.
absl::Status ArrayRemoval::ReleaseUnusedGrants(const std::string& name, GrantStore& grants) {
  ASSIGN_OR_RETURN(const std::vector<VolumeUse> uses, failover_.ListUses(name));
  std::set<std::pair<VolumeId, NodeName>> attached;
  for (const VolumeUse& use : uses)
    if (use.has_device) attached.emplace(use.volume, use.node);
  ASSIGN_OR_RETURN(const std::vector<Grant> all,
                   grants.ListGrants({.volume = {}, .node = {}, .holders_only = true}));
  for (const Grant& grant : all) {
    if (grant.owner != GrantOwner::kNode || attached.contains({grant.volume, NameOf(grant.node)})) continue;
    if (!failover_.Hears(grant.node).value_or(false)) continue;
    RETURN_IF_ERROR(grants.ReleaseGrant(grant.volume, grant.node, grant.owner, grant.generation));
  }
  return absl::OkStatus();
}

}  // namespace lunkeeper::fencing
