#pragma once
// Joins Kubernetes' objects into the core's Nodes and Pods: which machine runs which instance of the driver,
// which volumes a pod has on which array, and whether it may be moved. Objects arrive in any order; when one
// changes, everything that depends on it is reported again. A pod whose volumes are not known yet counts as
// one with volumes of another driver, which is left alone. One thread uses it; nothing fails.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fencing/core/event.h"
#include "fencing/failover/facts.h"

namespace lunkeeper::fencing {

class ObjectCache {
 public:
  // `report` receives NodeSeen, NodeGone, PodSeen, PodGone and VolumeCharged.
  explicit ObjectCache(std::function<void(decltype(Event::what))> report) : report_(std::move(report)) {}

  // Each takes the new facts of one object; null: it is gone.
  void OnNode(const std::string& name, std::shared_ptr<const NodeFacts> facts);
  void OnNodeId(const std::string& node, const NodeId* node_id);
  void OnPod(const std::string& key, std::shared_ptr<const PodFacts> facts);
  void OnVolume(const std::string& name, std::shared_ptr<const VolumeFacts> facts);
  void OnNamespace(const std::string& name, const FailoverPolicy* policy);
  void OnStorageClass(const std::string& name, const FailoverPolicy* policy);

  const NodeFacts* FindNode(const NodeName& name) const;
  const PodFacts* FindPod(const PodId& pod) const;
  const VolumeFacts* FindVolume(const std::string& name) const;
  // The PersistentVolume's name; null: there is no bound one.
  const std::string* FindVolumeOf(const VolumeId& volume) const;
  // All their names: people may make several for one volume.
  std::vector<std::string> ListVolumesOf(const VolumeId& volume) const;
  // Whether a pod on the node has a claim of the volume.
  bool IsUsedOn(const NodeName& node, const VolumeId& volume) const;

 private:
  void ReportNode(const std::string& name);
  void ReportPod(const std::string& key);
  void ReportPodsOf(const std::string& claim);
  void ForgetPod(const std::string& key);
  void ForgetVolume(const std::string& name);
  void ReportCharge(const VolumeFacts* before, const VolumeFacts* now) const;
  void AddClaim(Pod& pod, const std::string& claim) const;
  // Null: there is no bound one.
  const VolumeFacts* FindVolumeOfClaim(const std::string& claim) const;

  const std::function<void(decltype(Event::what))> report_;
  std::map<std::string, std::shared_ptr<const NodeFacts>> nodes_;
  std::map<std::string, NodeId> node_ids_;
  std::map<std::string, std::shared_ptr<const PodFacts>> pods_;
  std::map<std::string, std::shared_ptr<const VolumeFacts>> volumes_;
  // PersistentVolumes' names by volume id. Both point into `volumes_`, as there may be 30,000 of them.
  std::unordered_multimap<std::string_view, const std::string*> volume_names_;
  // By claim, which is text of the facts: keys of `pods_`; and the facts in `volumes_`, of which there may be
  // several for one claim: it is bound to the last.
  std::unordered_multimap<std::string_view, const std::string*> claimants_;
  std::unordered_map<std::string_view, const VolumeFacts*> bound_;
  std::map<std::string, FailoverPolicy> namespaces_, classes_;
};

}  // namespace lunkeeper::fencing
