// What is true of nodes, pods and volumes is kept as plain values, and published as objects each time that it
// changes. Records, leases and whatever else only the product writes are objects alone. A write that names a
// version or a UID is a conflict if the object has another one.
//
// Behind the API server stand the controllers that a failover meets: the StatefulSet controller makes a pod
// anew when it is gone, the scheduler places it, the node lifecycle controller marks nodes, the garbage
// collector removes the pods of nodes that are gone. At the end come what people and a restore of etcd do.

#include "fencing/sim/api.h"

#include <algorithm>

#include "absl/strings/str_split.h"
#include "fencing/failover/record.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/object_json.h"

namespace lunkeeper::fencing::sim {
namespace {

using kube::FieldAt;
using kube::TextAt;

const kube::Resource kVolumes{"", "v1", "persistentvolumes"};
const kube::Resource kLeases{"coordination.k8s.io", "v1", "leases"};
const kube::ObjectRef kLeaderLease{kLeases, "kube-system", "lunkeeper-failover"};

kube::ObjectRef RefOf(const PodId& pod) { return {kube::kPods, SpaceOf(pod), NameIn(pod)}; }
kube::ObjectRef RefOf(const NodeName& node) { return {kube::kNodes, "", node.value()}; }
kube::ObjectRef RefOf(const NodeId& fence) { return {kNodeFences, "", fence.value()}; }
kube::ObjectRef KubeletLeaseOf(const NodeName& node) { return {kLeases, "kube-node-lease", node.value()}; }
bool IsRecord(const kube::ObjectRef& at) { return at.resource.plural == kNodeFences.plural; }

constexpr Span kWatchMargin = 5_s;
constexpr Span kNodeGrace = 40_s, kNodeLook = 1_s, kRetry = 1_s, kOrphanPods = 20_s;

}  // namespace

Api::Api(World& world) : world_(world), endpoint_(world.AddEndpoint()), feeds_(world, endpoint_) {
  world_.After(kNodeLook, [this] { LookAfterNodes(); });
}

void Api::Publish(const Node& node) {
  Node& known = objects_.nodes[node.name] = node;
  known.version = store_.Put(RefOf(node.name), NodeObject(node));
  const kube::ObjectRef csi_node{kube::kCsiNodes, "", node.name.value()};
  const Json object = CsiNodeObject(node);
  const Json* published = store_.Find(csi_node);
  if (published == nullptr || (*published)["spec"] != object["spec"]) store_.Put(csi_node, object);
}

void Api::Publish(const Pod& pod) {
  objects_.pods[pod.id] = pod;
  store_.Put(RefOf(pod.id), PodObject(pod, HasFailed(pod)));
}

void Api::PublishVolume(const VolumeId& volume) {
  store_.Put({kVolumes, "", "pv-" + volume.value()},
             VolumeObject(claimed_by_.at(volume), volume, objects_.charged[volume]));
}

void Api::AddNode(const NodeName& name, const NodeId& instance) {
  Node node;
  node.name = name;
  node.uid = Uid("node" + std::to_string(++uid_));
  node.node_id = instance;
  if (registers_tainted) node.plugin_taint = PluginTaint::kAtStart;
  renewed_[name] = world_.now();
  Publish(node);
  store_.Put(KubeletLeaseOf(name), KubeletLeaseObject(renewed_[name], Span()));
}

void Api::AddWorkload(const Workload& workload) {
  workloads_.push_back(workload);
  for (const auto& [array, volumes] : workload.volumes)
    for (const auto& volume : volumes) {
      claimed_by_[volume] = workload.id;
      PublishVolume(volume);
    }
  if (workload.foreign)
    store_.Put({kVolumes, "", "foreign-" + NameIn(workload.id)}, ForeignObject(workload.id));
  Ensure(workload);
}

const Workload* Api::FindWorkloadOf(const PodId& pod) const {
  for (const auto& workload : workloads_)
    if (workload.Owns(pod)) return &workload;
  return nullptr;
}

const Pod* Api::FindPodOf(const Workload& workload) const {
  const Pod* found = nullptr;
  for (const auto& [id, pod] : objects_.pods)
    if (workload.Owns(id) && (!found || found->deleting || HasFailed(*found))) found = &pod;
  return found;
}

absl::StatusOr<Json> Api::Get(const kube::ObjectRef& at) const {
  const Json* object = store_.Find(at);
  if (object == nullptr) return absl::NotFoundError(at.name + " not found");
  return *object;
}

absl::StatusOr<Json> Api::Create(const kube::ObjectRef& at, const Json& object) {
  if (at.resource.plural == "events") return object;  // nothing goes by them
  auto created = store_.Create(at, object);
  if (IsRecord(at)) ReadRecords();
  return created;
}

absl::StatusOr<Json> Api::Patch(const kube::ObjectRef& at, const Json& merge,
                                const kube::Preconditions& only_if) {
  if (auto status = store_.Check(at, only_if); !status.ok()) return status;
  if (at.resource.plural == kube::kNodes.plural) return PatchNode(at, merge);
  if (at.resource.plural == kVolumes.plural) return PatchVolume(at, merge);
  if (at.resource.plural == kube::kPods.plural) return PatchPodStatus(at, merge);
  auto patched = store_.Patch(at, merge);
  if (IsRecord(at)) ReadRecords();
  return patched;
}

// All of the taints are written, so what a patch leaves out is gone.
absl::StatusOr<Json> Api::PatchNode(const kube::ObjectRef& at, const Json& merge) {
  Node node = objects_.nodes.at(NodeName(at.name));
  const std::string before = node.taint;
  node.taint.clear();
  node.plugin_taint = PluginTaint::kNone;
  node.out_of_service = false;
  for (const Json& taint : FieldAt(merge, {"spec", "taints"})) {
    if (TextAt(taint, {"key"}) == kFencedTaint) node.taint = at.name + "." + TextAt(taint, {"value"});
    if (TextAt(taint, {"key"}) == kPluginTaint)
      node.plugin_taint =
          TextAt(taint, {"value"}) == "silent" ? PluginTaint::kByLeader : PluginTaint::kAtStart;
    if (TextAt(taint, {"key"}) == kOutOfServiceTaint) node.out_of_service = true;
  }
  if (node.taint.empty() && !before.empty()) world_.checker->Untainting(objects_.nodes.at(node.name));
  const bool tainted = node.plugin_taint != objects_.nodes.at(node.name).plugin_taint;
  if (tainted && node.plugin_taint == PluginTaint::kByLeader) world_.checker->TaintsForPlugin(node);
  Publish(node);
  return *store_.Find(at);
}

absl::StatusOr<Json> Api::PatchVolume(const kube::ObjectRef& at, const Json& merge) {
  const VolumeId volume(TextAt(*store_.Find(at), {"spec", "csi", "volumeHandle"}));
  const std::string nodes = TextAt(merge, {"metadata", "annotations", kMountDeaths});
  objects_.charged[volume].clear();
  for (const auto node : absl::StrSplit(nodes, ',', absl::SkipEmpty()))
    objects_.charged[volume].emplace_back(std::string(node));
  PublishVolume(volume);
  return *store_.Find(at);
}

absl::StatusOr<Json> Api::PatchPodStatus(const kube::ObjectRef& at, const Json& merge) {
  Pod pod = objects_.pods.at(PodId(at.space + "/" + at.name));
  if (at.subresource == "status" && TextAt(merge, {"status", "phase"}) == "Failed") {
    world_.checker->Deleting(pod, Grace::kNone);  // to which it comes: its Job makes another one
    objects_.failed.insert(pod.uid);
    pod.running = false;
    Publish(pod);
    EnsureSoon(*FindWorkloadOf(pod.id));
  }
  return *store_.Find(at);
}

bool Api::AwaitsFailure(const Pod& pod) const {
  return FindWorkloadOf(pod.id)->awaits_failure && !pod.node.empty() && !HasFailed(pod);
}

absl::Status Api::Delete(const kube::ObjectRef& at, const kube::Preconditions& only_if,
                         std::optional<absl::Duration> grace) {
  if (at.resource.plural != kube::kPods.plural) {
    auto status = store_.Delete(at, only_if);
    if (IsRecord(at)) ReadRecords();
    return status;
  }
  const bool any_uid = world_.Has(Mutant::kDeleteAnyUid);
  if (auto status = store_.Check(at, any_uid ? kube::Preconditions() : only_if); !status.ok()) return status;
  return DeletePod(at, grace == absl::ZeroDuration() ? Grace::kNone : Grace::kOrdinary);
}

absl::Status Api::DeletePod(const kube::ObjectRef& at, Grace grace) {
  Pod pod = objects_.pods.at(PodId(at.space + "/" + at.name));
  world_.checker->Deleting(pod, grace);
  if (grace == Grace::kNone && AwaitsFailure(pod)) {
    KeepDeleted(pod);
  } else if (grace == Grace::kNone || pod.node.empty()) {
    Ended(pod.uid);
  } else if (!pod.deleting) {
    pod.deleting = true;
    Publish(pod);
    EnsureSoon(*FindWorkloadOf(pod.id));
  }
  return absl::OkStatus();
}

void Api::DeleteByForce(const PodId& pod) { Delete(RefOf(pod), {}, absl::ZeroDuration()).IgnoreError(); }

void Api::DeletePodAsOperator(const PodId& pod) { Delete(RefOf(pod), {}, std::nullopt).IgnoreError(); }

// A watch ends a while before its reader gives it up.
absl::Status Api::OpenWatch(const std::shared_ptr<Feed>& feed, const std::string& since, Span lasts) {
  const auto missed = store_.ChangesSince(feed->selection, since);
  if (!missed.ok()) return missed.status();
  feeds_.Add(feed, lasts - kWatchMargin);
  for (const auto& change : *missed) feeds_.PushTo(feed, change, late_percent);
  return absl::OkStatus();
}

std::string Api::LeaseHolder() const {
  const Json* lease = store_.Find(kLeaderLease);
  return lease == nullptr ? "" : TextAt(*lease, {"spec", "holderIdentity"});
}

void Api::ReadRecords() {
  objects_.fences.clear();
  for (const Json& object : store_.List({kNodeFences})) {
    NodeFence fence = ReadRecord(object).fence;
    objects_.fences[fence.node] = std::move(fence);
  }
}

void Api::Ended(const Uid& uid) {
  for (const auto& [id, pod] : objects_.pods) {
    if (pod.uid != uid) continue;
    const auto gone = id;
    if (FindWorkloadOf(gone)->awaits_failure) objects_.failed.insert(uid);
    if (finalizers == 0) {
      objects_.pods.erase(gone);
      store_.Erase(RefOf(gone));
    } else {
      KeepDeleted(pod);
    }
    return EnsureSoon(*FindWorkloadOf(gone));
  }
}

void Api::KeepDeleted(Pod pod) {
  if (pod.deleted) return;
  pod.deleting = pod.deleted = true;
  Publish(pod);
}

void Api::BreakWatches() { feeds_.Close(absl::UnavailableError("connection reset")); }

void Api::Ensure(const Workload& workload) {
  const Pod* there = FindPodOf(workload);
  const auto is_over = [&] { return HasFailed(*there) || (there->deleting && !workload.awaits_failure); };
  if (there && (workload.NamesItsPod() || !is_over())) return;
  if (!up) return EnsureSoon(workload);
  Pod pod;
  pod.uid = Uid(workload.id.value() + "-" + std::to_string(++uid_));
  pod.id = workload.NamesItsPod() ? workload.id : PodId(pod.uid.value());
  pod.foreign_volumes = workload.foreign;
  pod.owner_kind = workload.owner_kind;
  pod.owner = Uid("owner-of-" + workload.id.value());
  pod.policy = workload.policy;
  pod.volumes = workload.volumes;
  Publish(pod);
  world_.After(world_.random().Between(5_ms, 50_ms), [this, id = pod.id] { Schedule(id); });
}

void Api::EnsureSoon(const Workload& workload) {
  world_.After(up ? world_.random().Between(5_ms, 60_ms) : kRetry, [this, workload] { Ensure(workload); });
}

void Api::Schedule(const PodId& id) {
  const auto found = objects_.pods.find(id);
  if (found == objects_.pods.end() || !found->second.node.empty()) return;
  std::vector<NodeName> fit;
  for (const auto& [name, node] : objects_.nodes)
    if (node.ready && node.taint.empty() && node.plugin_taint == PluginTaint::kNone && !node.out_of_service)
      fit.push_back(name);
  if (!up || fit.empty()) {
    world_.After(kRetry, [this, id] { Schedule(id); });
    return;
  }
  Pod pod = found->second;
  pod.node = world_.random().Pick(fit);
  world_.Trace("scheduled " + id.value() + " on " + pod.node.value());
  Publish(pod);
}

// The node lifecycle controller and the pod garbage collector.
void Api::LookAfterNodes() {
  world_.After(kNodeLook, [this] { LookAfterNodes(); });
  if (!up) return;
  for (const auto& [name, known] : objects_.nodes) {
    Node node = known;
    node.ready = world_.now() - renewed_[name] < kNodeGrace;
    if (node.ready != known.ready) Publish(node);
  }
  std::vector<Uid> deleted;
  for (const auto& [id, pod] : objects_.pods)
    if (pod.deleted && !AwaitsFailure(pod)) deleted.push_back(pod.uid);
  for (const auto& uid : deleted) Ended(uid);
  if (world_.now().since_start() % kOrphanPods >= kNodeLook) return;
  std::vector<Uid> orphans;
  for (const auto& [id, pod] : objects_.pods)
    if (!pod.node.empty() && !objects_.nodes.contains(pod.node)) orphans.push_back(pod.uid);
  for (const auto& uid : orphans) Ended(uid);
}

std::vector<Pod> Api::PodsOn(const NodeName& name) const {
  std::vector<Pod> result;
  for (const auto& [id, pod] : objects_.pods)
    if (pod.node == name && !HasFailed(pod)) result.push_back(pod);
  return result;
}

void Api::Renew(const NodeName& name, const NodeId& instance, Span clock_error) {
  if (!objects_.nodes.contains(name)) AddNode(name, instance);
  renewed_[name] = world_.now();
  store_.Put(KubeletLeaseOf(name), KubeletLeaseObject(renewed_[name], clock_error));
  Node node = objects_.nodes.at(name);
  if (node.node_id == instance) return;
  node.node_id = instance;  // its driver registered anew
  Publish(node);
}

void Api::Report(const Uid& uid, bool running, bool crash_looping) {
  for (const auto& [id, known] : objects_.pods) {
    if (known.uid != uid || (known.running == running && known.crash_looping == crash_looping)) continue;
    if (HasFailed(known)) continue;  // for good
    Pod pod = known;
    pod.running = running;
    pod.crash_looping = crash_looping;
    return Publish(pod);
  }
}

void Api::TakeCopy() {
  copy_ = objects_;
  store_.TakeCopy();
}

// etcd goes back in time.
void Api::RestoreCopy() {
  objects_ = copy_;
  store_.RestoreCopy();
  ReadRecords();
  feeds_.Close(absl::UnavailableError("connection reset"));
  for (const auto& workload : workloads_) EnsureSoon(workload);
  for (const auto& [id, pod] : objects_.pods)
    if (pod.node.empty()) world_.After(10_ms, [this, pod_id = id] { Schedule(pod_id); });
}

void Api::DeleteNode(const NodeName& name) {
  objects_.nodes.erase(name);
  store_.Erase(RefOf(name));
  store_.Erase({kube::kCsiNodes, "", name.value()});
  store_.Erase(KubeletLeaseOf(name));
}

void Api::SetOutOfService(const NodeName& name, bool on) {
  const auto found = objects_.nodes.find(name);
  if (found == objects_.nodes.end()) return;
  Node node = found->second;
  node.out_of_service = on;
  Publish(node);
}

void Api::CreateFence(const NodeId& node) {
  const Json spec = {{"cause", "maintenance"}, {"graceful", world_.random().Percent(40)}};
  Create({kNodeFences, "", ""}, {{"metadata", {{"name", node.value()}}}, {"spec", spec}}).IgnoreError();
}

void Api::DeleteFence(const NodeId& node) { Delete(RefOf(node), {}, std::nullopt).IgnoreError(); }

void Api::EndAllAsOperator() {
  const auto objects = objects_;
  for (const auto& [name, node] : objects.nodes)
    if (node.out_of_service) SetOutOfService(name, false);
  for (const auto& [node, fence] : objects.fences)
    if (!fence.requested_by.empty()) DeleteFence(node);
}

void Api::AllowVolumesAsOperator() {
  for (auto& [volume, nodes] : objects_.charged) {
    if (nodes.empty()) continue;
    nodes.clear();
    PublishVolume(volume);
  }
}

void Api::ForceDeleteAsOperator(const Workload& workload) {
  const Pod* pod = FindPodOf(workload);
  if (pod) Ended(Uid(pod->uid));  // a copy: it goes
}

}  // namespace lunkeeper::fencing::sim
