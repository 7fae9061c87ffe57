// The order of a removal, on the calling thread:
//
//   look      who uses the array; without force, anybody ends it here
//   record    from here on it is removed, whatever becomes of this call
//   pods      the pods that use it are deleted, with their own grace periods; killed here, the caller repeats
//
// The look is not a lock: a pod that begins to use a volume just then gets I/O errors, as it would have
// a moment later.
//
// The order of an addition:
//
//   release   grants that are left from before
//   record    it is being added back: no replica that reads this has a node end its I/O any more
//   wait      until a replica that does not read it is not certain any more that it is removed
//   erase     from here on it is used; unless the record was changed meanwhile, by a removal perhaps
#include "fencing/failover/array_removal.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "devices/node_id.h"
#include "fencing/failover/removal_record.h"

namespace lunkeeper::fencing {
namespace {

// An error names no more of them.
constexpr size_t kMostNamed = 20;

// What a replica that was certain has said is carried out by then: an answer to a heartbeat is on its way for
// a moment, and nodes look at their devices twice a second.
const absl::Duration kUntilNobodyIsCertain = RemainingArrays::kCertainFor + absl::Seconds(2);

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

// A write that was not answered.
absl::Status SayIfUnknown(const absl::Status& stored, const std::string& array, const char* what) {
  if (!absl::IsUnavailable(stored) && !absl::IsDeadlineExceeded(stored)) return stored;
  return absl::Status(stored.code(), absl::StrCat("whether array ", array, " ", what,
                                                  " now is not known, for the API server "
                                                  "did not answer: repeat the command (",
                                                  stored.message(), ")"));
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
  RETURN_IF_ERROR(SayIfUnknown(StoreRemoval(client_, space_, request.array, request.by, deadline),
                               request.array, "is removed"));
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
  // What this replica last read may be older than the removal.
  ASSIGN_OR_RETURN(const RemovedNames stored, ReadRemovals(client_, space_, {deadline}));
  if (!stored.removed.contains(name) && !arrays_.ListLost().contains(name)) return absl::OkStatus();
  RETURN_IF_ERROR(ReleaseUnusedGrants(name, array->grants(), deadline));
  ASSIGN_OR_RETURN(const std::string version, StoreAddition(client_, space_, name, deadline));
  absl::SleepFor(kUntilNobodyIsCertain);
  const absl::Status erased = EraseRemoval(client_, space_, name, version, deadline);
  if (absl::IsAborted(erased))
    return absl::AbortedError(
        absl::StrCat("somebody else removes or adds an array at this moment, and array ", name,
                     " may be removed: repeat "
                     "the command if it is to be added back"));
  RETURN_IF_ERROR(SayIfUnknown(erased, name, "is added back"));
  LogInfo("failover", "an array is added back", {{"array", name}});
  return absl::OkStatus();
}

// While it is removed nobody acquires anything there, so a grant without a device is nobody's. Of a node that
// is not heard nothing is known: it may have its volumes still.
absl::Status ArrayRemoval::ReleaseUnusedGrants(const std::string& name, GrantStore& grants,
                                               absl::Time deadline) {
  const SteadyDeadline end(deadline);
  ASSIGN_OR_RETURN(const std::vector<VolumeUse> uses, failover_.ListUses(name));
  std::set<std::pair<VolumeId, NodeName>> attached;
  for (const VolumeUse& use : uses)
    if (use.has_device) attached.emplace(use.volume, use.node);
  ASSIGN_OR_RETURN(const std::vector<Grant> all,
                   grants.ListGrants({.volume = {}, .node = {}, .holders_only = true}));
  for (const Grant& grant : all) {
    if (grant.owner != GrantOwner::kNode || attached.contains({grant.volume, NameOf(grant.node)})) continue;
    if (!failover_.Hears(grant.node).value_or(false)) continue;
    if (end.IsOver())
      return absl::DeadlineExceededError(
          absl::StrCat("array ", name,
                       " is still removed: it releases the grants of its nodes too slowly; repeat the "
                       "command to go on"));
    RETURN_IF_ERROR(grants.ReleaseGrant(grant.volume, grant.node, grant.owner, grant.generation));
  }
  return absl::OkStatus();
}

}  // namespace lunkeeper::fencing
