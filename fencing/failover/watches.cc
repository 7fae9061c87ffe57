#include "fencing/failover/watches.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/log.h"
#include "fencing/kube/informer.h"

// One informer, and so one thread and one connection, for each kind. They reduce objects on their own threads
// and post the results. The posts of one kind keep their order; those of different kinds do not, which is why
// the object cache accepts any order.
//
// After a restore of etcd a watch can be wrong without a sign of it: it goes on from a version that the new
// history has passed by then, or the core knows from the answer to its own write what was lost with the
// restore, and the list brings nothing that is new to the informer. Each write of the object conflicts then,
// for ever. So conflicts that last lead to a list, and the object is delivered again in any case. Of a record
// that the core has removed no write conflicts. So the next list, whenever it comes, delivers that one again.
namespace lunkeeper::fencing {
namespace {

// Of a watch that is late, the news comes within moments.
constexpr Span kConflictsLast = 3_s;
// Conflicts that are further apart have nothing to do with each other.
constexpr Span kConflictsApart = 60_s;
// Between two lists of a kind: at first, and at most, as each doubles the pause. A list of all pods is what
// hurts an API server, and something else may be the reason for a refusal.
constexpr Span kFirstPause = 5_s, kLongestPause = 300_s;

std::optional<FailoverPolicy> FailoverPolicyOf(const kube::Json& object) {
  const FailoverPolicy policy = ReadFailoverPolicy(object);
  return policy == FailoverPolicy::kUnsaid ? std::nullopt : std::make_optional(policy);
}

}  // namespace

template <class T>
void Watches::Add(const kube::Selection& selection, std::function<std::optional<T>(const kube::Json&)> reduce,
                  std::function<void(const std::string&, const std::shared_ptr<const T>&)> changed) {
  const std::string kind = selection.resource.plural;
  missing_.insert(kind);
  kube::InformerHooks<T> hooks;
  hooks.reduce = std::move(reduce);
  // A person may be waiting for a NodeFence they made, so it wakes the loop. With everything else the loop
  // can wait for its next tick, and handles hundreds of changes at once.
  const Wake wake = kind == kNodeFences.plural ? Wake::kNow : Wake::kLater;
  hooks.changed = [this, kind, wake, changed = std::move(changed)](const auto& key, const auto& now) {
    handlers_.post(
        [this, kind, changed, key, now] {
          conflicts_.erase({kind, key});
          changed(key, now);
        },
        wake);
  };
  hooks.live = [this, kind](bool live) {
    handlers_.post([this, kind, live] { SetLive(kind, live); }, Wake::kNow);
  };
  const auto informer = std::make_shared<kube::Informer<T>>(client_, selection, std::move(hooks),
                                                            kube::WatchTimes(), executor_);
  list_again_by_[kind] = [&at = *informer](const std::string& key) { at.ListAgain(key); };
  deliver_again_by_[kind] = [&at = *informer](const std::string& key) { at.DeliverAgain(key); };
  informers_.push_back(informer);
}

Watches::Watches(kube::KubeClient& client, WatchHandlers handlers, Executor& executor)
    : client_(client),
      executor_(executor),
      handlers_(std::move(handlers)),
      random_(static_cast<std::minstd_rand::result_type>(absl::ToInt64Nanoseconds(executor.SteadyNow()))) {
  ObjectCache& to = handlers_.objects;
  Add<NodeFacts>({kube::kNodes}, ReadNode, [&to](const auto& key, const auto& now) { to.OnNode(key, now); });
  Add<NodeId>({kube::kCsiNodes}, ReadNodeId,
              [&to](const auto& key, const auto& now) { to.OnNodeId(key, now); });
  Add<PodFacts>(
      {kube::kPods}, [own = handlers_.own_namespace](const auto& pod) { return ReadPod(pod, own); },
      [&to](const auto& key, const auto& now) { to.OnPod(key, now); });
  Add<VolumeFacts>({kPersistentVolumes}, ReadVolume,
                   [&to](const auto& key, const auto& now) { to.OnVolume(key, now); });
  Add<FailoverPolicy>({{"storage.k8s.io", "v1", "storageclasses"}}, FailoverPolicyOf,
                      [&to](const auto& key, const auto& now) { to.OnStorageClass(key, now.get()); });
  Add<FailoverPolicy>({{"", "v1", "namespaces"}}, FailoverPolicyOf,
                      [&to](const auto& key, const auto& now) { to.OnNamespace(key, now.get()); });
  Add<RecordFacts>({kNodeFences}, ReadRecord,
                   [this](const auto& key, const auto& now) { handlers_.on_record(key, now.get()); });
  Add<std::string>(kKubeletLeases, ReadRenewal, [this](const std::string& key, const auto& now) {
    if (now != nullptr) handlers_.on_kubelet(key.substr(key.find('/') + 1), *now);
  });
}

// Failover acts once every kind was live at the same time. A watch that breaks later makes a kind missing
// again until it is back; the core sees that as an API server that is down.
void Watches::SetLive(const std::string& kind, bool live) {
  if (!live) {
    missing_.insert(kind);
    return;
  }
  missing_.erase(kind);
  if (!missing_.empty()) return;
  in_step_since_ = NowOn(executor_);
  handlers_.on_synced();
}

// None: nothing is written, or not to what is watched.
std::optional<Watches::ObjectName> Watches::FindObjectOf(const Action& action) const {
  if (const auto* put = std::get_if<PutNodeFence>(&action.what))
    return ObjectName{kNodeFences.plural, put->fence.node.value()};
  if (const auto* remove = std::get_if<RemoveNodeFence>(&action.what))
    return ObjectName{kNodeFences.plural, remove->node.value()};
  if (const auto* taint = std::get_if<SetTaint>(&action.what))
    return ObjectName{kube::kNodes.plural, taint->node.value()};
  if (const auto* pod = std::get_if<DeletePod>(&action.what))
    return ObjectName{kube::kPods.plural, pod->pod.value()};
  if (const auto* charge = std::get_if<ChargeVolume>(&action.what))
    if (const std::string* name = handlers_.objects.FindVolumeOf(charge->volume); name != nullptr)
      return ObjectName{kPersistentVolumes.plural, *name};
  return std::nullopt;
}

void Watches::NoteOutcome(const Action& action, Outcome outcome) {
  if (outcome != Outcome::kOk && outcome != Outcome::kConflict && outcome != Outcome::kGone) return;
  const auto object = FindObjectOf(action);
  if (!object) return;
  if (outcome == Outcome::kOk) {
    conflicts_.erase(*object);
    // What is written is believed before the watch brings it. A restore of etcd may have taken it back.
    deliver_again_by_.at(object->first)(object->second);
    return;
  }
  const Instant now = NowOn(executor_);
  Conflicts& conflicts = conflicts_.try_emplace(*object, Conflicts{now, now}).first->second;
  if (now - conflicts.last > kConflictsApart) conflicts.first = now;
  conflicts.last = now;
  if (now - conflicts.first >= kConflictsLast && ListAgain(*object, now)) conflicts_.erase(*object);
}

bool Watches::ListAgain(const ObjectName& object, Instant now) {
  const auto& [kind, key] = object;
  const auto known = paces_.find(kind);
  if (known != paces_.end() && now < known->second.next) return false;
  const bool again = known != paces_.end() && now - known->second.next < kLongestPause;
  const Span pause = again ? std::min(2 * known->second.pause, kLongestPause) : kFirstPause;
  const auto jitter = std::uniform_int_distribution<int64_t>(0, pause.milliseconds() / 2)(random_);
  paces_[kind] = {now + pause + Span::OfMilliseconds(jitter), pause};
  LogWarn("failover",
          "writes conflict with what is there, and the watch brings nothing new; listing everything again",
          {{"kind", kind}, {"object", key}});
  list_again_by_.at(kind)(key);
  return true;
}

}  // namespace lunkeeper::fencing
