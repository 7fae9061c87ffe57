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

#include "absl/container/flat_hash_set.h"
#include "fencing/core/event.h"
#include "fencing/failover/facts.h"

namespace lunkeeper::fencing {

class ObjectCache {
 public:
  // `report` receives NodeSeen, NodeGone, PodSeen, PodGone and VolumeCharged.
  explicit ObjectCache(std::function<void(decltype(Event::what))> report) : report_(std::move(report)) {}

  // Each takes the new facts of one object; null: it is gone.
  void OnNode(const std::string& name, std::shared_ptr<const NodeFacts> facts);
  void OnNodeId(const std::string& name, std::shared_ptr<const NodeId> id);
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
  // Either may be there without the other.
  struct KnownNode {
    std::shared_ptr<const NodeFacts> facts;
    std::shared_ptr<const NodeId> id;  // of the driver that is registered there
  };
  struct ByClaim {
    using is_transparent = void;
    static std::string_view ClaimOf(std::string_view claim) { return claim; }
    static std::string_view ClaimOf(const VolumeFacts* volume) { return volume->claim; }
    size_t operator()(const auto& of) const { return std::hash<std::string_view>()(ClaimOf(of)); }
    bool operator()(const auto& a, const auto& b) const { return ClaimOf(a) == ClaimOf(b); }
  };
  void ReportNode(const std::string& name, const KnownNode& known) const;
  void ReportPod(const std::string& key);
  void ReportPodsOf(const std::string& claim);
  void ForgetPod(const std::string& key);
  void ForgetVolume(const std::string& name);
  void ReportCharge(const VolumeFacts* before, const VolumeFacts* now) const;
  void AddClaim(Pod& pod, const std::string& claim) const;
  // Null: there is no bound one.
  const VolumeFacts* FindVolumeOfClaim(const std::string& claim) const;

  const std::function<void(decltype(Event::what))> report_;
  std::map<std::string, KnownNode> nodes_;
  std::map<std::string, std::shared_ptr<const PodFacts>> pods_;
  std::map<std::string, std::shared_ptr<const VolumeFacts>> volumes_;
  // PersistentVolumes' names by volume id. Both point into `volumes_`, as there may be 30,000 of them.
  std::unordered_multimap<std::string_view, const std::string*> volume_names_;
  // By claim, which is text of the facts: keys of `pods_`; and the facts in `volumes_`, of which there may be
  // several for one claim: it is bound to the last.
  std::unordered_multimap<std::string_view, const std::string*> claimants_;
  absl::flat_hash_set<const VolumeFacts*, ByClaim, ByClaim> bound_;
  std::map<std::string, FailoverPolicy> namespaces_, classes_;
};

}  // namespace lunkeeper::fencing
