#include "fencing/failover/watches.h"

#include <utility>

#include "fencing/kube/informer.h"

// One informer, and so one thread and one connection, for each kind. They reduce objects on their own threads
// and post the results. The posts of one kind keep their order; those of different kinds do not, which is why
// the object cache accepts any order.
namespace lunkeeper::fencing {
namespace {

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
  hooks.changed = [this, wake, changed = std::move(changed)](const auto& key, const auto& now) {
    handlers_.post([changed, key, now] { changed(key, now); }, wake);
  };
  hooks.live = [this, kind](bool live) {
    handlers_.post([this, kind, live] { SetLive(kind, live); }, Wake::kNow);
  };
  informers_.push_back(std::make_shared<kube::Informer<T>>(client_, selection, std::move(hooks),
                                                           kube::WatchTimes(), executor_));
}

Watches::Watches(kube::KubeClient& client, WatchHandlers handlers, Executor& executor)
    : client_(client), executor_(executor), handlers_(std::move(handlers)) {
  ObjectCache& to = handlers_.objects;
  Add<NodeFacts>({kube::kNodes}, ReadNode, [&to](const auto& key, const auto& now) { to.OnNode(key, now); });
  Add<NodeId>({kube::kCsiNodes}, ReadNodeId,
              [&to](const auto& key, const auto& now) { to.OnNodeId(key, now.get()); });
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

}  // namespace lunkeeper::fencing
