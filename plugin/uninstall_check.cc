// One look lists four kinds, as a whole: NodeFences; PersistentVolumes, which say whose claims are of this
// driver; pods, which use claims on nodes; and VolumeLocks, which say what nodes hold by the arrays. What is
// used by the two last is used. Looks are repeated until nothing is used or fenced, or the time is over that
// a use needs to be seen to have ended, or the API server has not answered for too long.
#include "plugin/uninstall_check.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <stop_token>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "fencing/failover/facts.h"
#include "fencing/failover/record.h"
#include "fencing/failover/volume_lock.h"
#include "fencing/kube/call_pool.h"
#include "plugin/admin_call.h"

namespace lunkeeper {
namespace {

using kube::FieldAt;
using kube::Json;
using kube::TextAt;

// An error names no more of them.
constexpr size_t kMostNamed = 20;
constexpr char kAllTheSame[] =
    "To uninstall all the same, use `helm uninstall --no-hooks`, or set uninstall.refuseWhileUsed to false";

// Each object is reduced as it arrives: a cluster may have 100,000 pods, and the Job little memory.
template <class Each>
absl::Status ForAll(kube::KubeClient& client, const kube::Resource& kind, absl::Time deadline,
                    const Each& each) {
  kube::PageRequest page;
  do {
    ASSIGN_OR_RETURN(const kube::PageEnd end, client.ListPage({kind}, page, each, {deadline}));
    page.next = end.next;
  } while (!page.next.empty());
  return absl::OkStatus();
}

// The uses are collected here, by the volume's id and the node.
class VolumeUsers {
 public:
  // One whose claim is gone is about to be deleted by the provisioner: nobody else would.
  void AddVolume(const Json& object) {
    const std::string phase = TextAt(object, {"status", "phase"});
    const bool is_being_deleted =
        phase == "Released" && TextAt(object, {"spec", "persistentVolumeReclaimPolicy"}) == "Delete";
    const fencing::VolumeFacts facts = fencing::ReadAnyVolume(object);
    if (facts.volume.empty() || !(phase == "Bound" || is_being_deleted)) return;
    const std::string& id = facts.volume.value();
    names_[id] = {TextAt(object, {"metadata", "name"}), facts.claim};
    if (is_being_deleted)
      UseAt(id, "").is_being_deleted = true;
    else
      by_claim_[facts.claim] = id;
  }
  // One without a node waits to be scheduled: nothing is mounted for it, and an uninstall makes it wait
  // longer. One that has ended and stays has its volumes unmounted by kubelet at once, and uses none; but one
  // that is being deleted is there until kubelet has unmounted them.
  void AddPod(const Json& object) {
    const auto facts = fencing::ReadAnyPod(object);
    if (!facts || facts->node.empty() || (fencing::HasEnded(object) && !facts->deleting)) return;
    for (const std::string& claim : facts->claims)
      if (const auto volume = by_claim_.find(claim); volume != by_claim_.end())
        UseAt(volume->second, facts->node.value())
            .pods.push_back(absl::StrCat(TextAt(object, {"metadata", "namespace"}), "/",
                                         TextAt(object, {"metadata", "name"})));
  }
  // Also of a node that is dead: its grant is at the array, and only Lunkeeper ends it there.
  void AddLock(const Json& object) {
    for (const Json& holder : FieldAt(object, {"status", "holders"}))
      UseAt(TextAt(object, {"metadata", "name"}), TextAt(holder, {"node"}));
  }
  std::vector<VolumeInUse> TakeUses() {
    std::vector<VolumeInUse> all;
    for (auto& each : uses_) all.push_back(std::move(each.second));
    return all;
  }

 private:
  VolumeInUse& UseAt(const std::string& id, const std::string& node) {
    VolumeInUse& use = uses_[{id, node}];
    const auto name = names_.find(id);
    use.volume = name == names_.end() ? id : name->second.first;
    use.claim = name == names_.end() ? "" : name->second.second;
    use.node = node;
    return use;
  }

  std::map<std::string, std::string> by_claim_;
  std::map<std::string, std::pair<std::string, std::string>> names_;  // PersistentVolume and claim, by id
  std::map<std::pair<std::string, std::string>, VolumeInUse> uses_;
};

std::string DescribeUse(const VolumeInUse& use) {
  const std::string where = use.is_being_deleted ? ", which is being deleted" : " on " + use.node;
  return absl::StrCat(use.volume, use.claim.empty() ? "" : absl::StrCat(" (claim ", use.claim, ")"), where,
                      use.pods.empty() ? "" : ", by pod " + absl::StrJoin(use.pods, ", "));
}

absl::Status RefuseUsed(const std::vector<VolumeInUse>& uses) {
  std::vector<std::string> named;
  for (const VolumeInUse& use : uses)
    if (named.size() < kMostNamed) named.push_back(DescribeUse(use));
  if (uses.size() > named.size()) named.push_back(absl::StrCat(uses.size() - named.size(), " more"));
  return absl::FailedPreconditionError(absl::StrCat(
      "volumes are used: ", absl::StrJoin(named, "; "),
      ". Nothing was uninstalled: without Lunkeeper nobody could unmount them or move their pods. End these "
      "pods, wait until `kubectl get volumelocks` shows none, and uninstall again. What an array that hangs "
      "or "
      "is gone for good still has on nodes ends by `lunkeeper remove-array NAME --force`. ",
      kAllTheSame));
}

std::string NameSome(std::vector<std::string> all) {
  const size_t more = all.size() > kMostNamed ? all.size() - kMostNamed : 0;
  all.resize(all.size() - more);
  if (more > 0) all.push_back(absl::StrCat(more, " more"));
  return absl::StrJoin(all, ", ");
}

absl::Status RefuseFenced(const std::vector<FencedNode>& fences) {
  std::vector<std::string> standing, over;
  for (const FencedNode& each : fences)
    if (each.kept_by.empty())
      standing.push_back(each.fence);
    else
      over.push_back(absl::StrCat(each.fence, " (", absl::StrJoin(each.kept_by, ", "), ")"));
  std::string why;
  if (!standing.empty())
    why = absl::StrCat(
        "nodes are fenced: ", NameSome(std::move(standing)),
        ". Nothing was uninstalled: without Lunkeeper nobody could lift these fences or remove the taints. "
        "Run `lunkeeper unfence NODE`, and where the machine is gone for good delete its Node; wait until "
        "`kubectl get nodefences` shows none, and uninstall again. ");
  if (!over.empty())
    absl::StrAppend(&why,
                    "NodeFences that are over are kept by finalizers of others: ", NameSome(std::move(over)),
                    ". Nothing was uninstalled: see why these do not finish, or remove these finalizers, and "
                    "uninstall again. ");
  return absl::FailedPreconditionError(why + kAllTheSame);
}

// Not known is not unused. It is the operator who decides, and reads how.
absl::Status SayUnknown(const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("whether volumes are used or nodes fenced could not be found out: ",
                                   status.message(), ". Nothing was uninstalled. ", kAllTheSame));
}

}  // namespace

// The volumes first: they say whose the pods' claims are. Without failover there are no VolumeLocks.
absl::StatusOr<std::vector<VolumeInUse>> FindUsedVolumes(kube::KubeClient& client, absl::Time deadline) {
  VolumeUsers uses;
  RETURN_IF_ERROR(ForAll(client, fencing::kPersistentVolumes, deadline,
                         [&](const Json& object) { uses.AddVolume(object); }));
  RETURN_IF_ERROR(ForAll(client, kube::kPods, deadline, [&](const Json& object) { uses.AddPod(object); }));
  const absl::Status locks =
      ForAll(client, fencing::kVolumeLocks, deadline, [&](const Json& object) { uses.AddLock(object); });
  if (!locks.ok() && !absl::IsNotFound(locks)) return locks;
  return uses.TakeUses();
}

// Without failover there are none.
absl::StatusOr<std::vector<FencedNode>> FindFencedNodes(kube::KubeClient& client, absl::Time deadline) {
  std::vector<FencedNode> fences;
  const absl::Status listed = ForAll(client, fencing::kNodeFences, deadline, [&](const Json& object) {
    FencedNode& fence = fences.emplace_back(FencedNode{TextAt(object, {"metadata", "name"}), {}});
    fencing::RecordFacts facts = fencing::ReadRecord(object);
    if (facts.IsReleased()) fence.kept_by = std::move(facts.finalizers);
  });
  if (!listed.ok() && !absl::IsNotFound(listed)) return listed;
  return fences;
}

// While something is used or fenced it is worth looking again, for a use that is just ending: an unmount, and
// then the VolumeLock's deletion a second later. An error is worth it for longer: a service account and its
// rights are as new as the Job, and an API server may be restarting.
absl::Status CheckUninstall(kube::KubeClient& client, const UninstallCheckTimes& times) {
  const absl::Time deadline = absl::Now() + times.timeout;
  const SteadyDeadline settled(times.settles), end(times.timeout);
  absl::Status why;  // it cannot be found out; that the API server is silent now says less than its last word
  for (;;) {
    const auto fences = FindFencedNodes(client, deadline);
    const auto uses = FindUsedVolumes(client, deadline);
    const absl::Status found = fences.ok() ? uses.status() : fences.status();
    if (why.ok() || !absl::IsDeadlineExceeded(found)) why = found;
    if (found.ok() && uses->empty() && fences->empty()) return absl::OkStatus();
    if (found.ok() && settled.left() < times.every)
      return uses->empty() ? RefuseFenced(*fences) : RefuseUsed(*uses);
    if (!found.ok() && end.left() < times.every) return SayUnknown(why);
    kube::PauseFor(times.every, std::stop_token());
  }
}

void AddUninstallCheckCommand(CLI::App* app, int* exit_code, const MakeClient& cluster) {
  const auto seconds = std::make_shared<int>(60);
  CLI::App* command = app->add_subcommand(
      "uninstall-check", "In the chart's Job: fail while volumes are used or nodes fenced, and name them");
  command
      ->add_option("--timeout", *seconds, "Seconds after which to give up if the API server does not answer")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  command->callback([=] {
    const auto client = cluster();
    const absl::Status checked =
        client.ok() ? CheckUninstall(**client, {.timeout = absl::Seconds(*seconds)}) : client.status();
    if (checked.ok()) std::cout << "no volume is used, and no node fenced" << std::endl;
    *exit_code = ExitCode(checked);
  });
}

}  // namespace lunkeeper
