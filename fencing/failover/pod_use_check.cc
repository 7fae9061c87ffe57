#include "fencing/failover/pod_use_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "fencing/failover/facts.h"
#include "fencing/kube/list_all.h"

// The API server is asked for one object and one namespace's pods on one node, by the names under which the
// cache knows the volume and the one that it was made with, which is its PersistentVolume's unless somebody
// chose another. A list of all pods of a node would make an API server read the pods of the whole cluster.
//
// The PersistentVolume says which claim has it. What a claim says of its volume counts for nothing: anybody
// who may make claims could name any volume.
namespace lunkeeper::fencing {
namespace {

constexpr absl::Duration kServerTime = absl::Seconds(3);
constexpr absl::Duration kRefusalTime = absl::Seconds(1);
// A controller that is stopping waits for these calls.
constexpr absl::Duration kTurnTime = absl::Seconds(5);

absl::Status NotUsed(const std::string& machine, const VolumeId& volume) {
  return absl::FailedPreconditionError(absl::StrCat(
      "volume ", volume.value(), " is not given to node ", machine,
      ": the API server knows no pod there with a claim of it; once there is one, kubelet's next try "
      "succeeds; if there is to be none, find out what on that node asks for the volume"));
}

}  // namespace

absl::Status PodUseCheck::CheckUse(const std::string& machine, const VolumeId& volume) {
  if (cache_(machine, volume).use != PodUse::kNone) return absl::OkStatus();
  if (!BeginTurn(machine))
    return absl::ResourceExhaustedError(
        absl::StrCat("volume ", volume.value(), ": node ", machine,
                     " asks for many volumes that none of its pods is known to use; try again later"));
  absl::Status status = CheckInTurn(machine, volume);
  EndTurn(machine);
  return status;
}

// The turn goes from the one that ends to the one that waits longest, whose signal is taken out of the queue.
bool PodUseCheck::BeginTurn(const std::string& machine) {
  const auto my_turn = executor_.MakeSignal();
  {
    absl::MutexLock lock(&mutex_);
    const auto [waiting, is_free] = waiting_.try_emplace(machine);
    if (is_free) return true;
    waiting->second.push_back(my_turn.get());
  }
  my_turn->WaitFor(kTurnTime);
  absl::MutexLock lock(&mutex_);
  return std::erase(waiting_.at(machine), my_turn.get()) == 0;
}

void PodUseCheck::EndTurn(const std::string& machine) {
  absl::MutexLock lock(&mutex_);
  auto& waiting = waiting_.at(machine);
  if (waiting.empty()) {
    waiting_.erase(machine);
  } else {
    waiting.front()->Set();
    waiting.pop_front();
  }
}

// The cache is asked once more: it may have caught up while others had their turns.
absl::Status PodUseCheck::CheckInTurn(const std::string& machine, const VolumeId& volume) {
  const KnownUse known = cache_(machine, volume);
  if (known.use != PodUse::kNone) return absl::OkStatus();
  const auto array = FindArrayOf(arrays_, volume.value());
  if (!array.ok()) return absl::OkStatus();  // the grant fails for the same reason
  const auto made = (*array)->volumes().GetVolume(volume);
  if (!made.ok()) return absl::OkStatus();
  std::set<std::string> names(known.names.begin(), known.names.end());
  names.insert(made->spec.name);
  const absl::StatusOr<bool> used = AskServer(machine, volume, names);
  if (!used.ok()) {
    LogWarn("coordinator", "a node gets a volume though nobody could tell whether its pods use it",
            {{"node", machine}, {"volume", volume.value()}, {"error", std::string(used.status().message())}});
    return absl::OkStatus();
  }
  if (*used) return absl::OkStatus();
  executor_.MakeSignal()->WaitFor(kRefusalTime);
  // Its PersistentVolume may have another name than the array knows, such as one that a person made.
  if (!known.knows_names)
    return absl::UnavailableError(absl::StrCat("volume ", volume.value(),
                                               ": failover is too busy to say which "
                                               "PersistentVolume has it: try again"));
  return NotUsed(machine, volume);
}

absl::StatusOr<bool> PodUseCheck::AskServer(const std::string& machine, const VolumeId& volume,
                                            const std::set<std::string>& names) {
  const kube::Limits limits(executor_.WallNow() + kServerTime);
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const bool used, IsUsedAs(name, machine, volume, limits));
    if (used) return true;
  }
  return false;
}

absl::StatusOr<bool> PodUseCheck::IsUsedAs(const std::string& name, const std::string& machine,
                                           const VolumeId& volume, const kube::Limits& limits) {
  const auto object = client_.Get({kPersistentVolumes, "", name}, limits);
  if (absl::IsNotFound(object.status())) return false;
  RETURN_IF_ERROR(object.status());
  const auto bound = ReadVolume(*object);
  if (!bound || bound->volume != volume) return false;
  const std::string space = bound->claim.substr(0, bound->claim.find('/'));
  ASSIGN_OR_RETURN(const auto pods,
                   kube::ListAll(client_, {kube::kPods, space, "", "spec.nodeName=" + machine}, limits));
  return std::any_of(pods.begin(), pods.end(), [&](const kube::Json& each) {
    const auto pod = ReadPod(each);
    return pod && pod->node == NodeName(machine) &&
           std::find(pod->claims.begin(), pod->claims.end(), bound->claim) != pod->claims.end();
  });
}

}  // namespace lunkeeper::fencing
