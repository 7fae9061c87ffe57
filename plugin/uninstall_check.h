#pragma once
// `lunkeeper uninstall-check`, for the Job that the chart runs before it is uninstalled: whether volumes of
// this driver are used still, or nodes fenced. Without its node plugins nobody could unmount them, and
// without its controllers nobody would fail them over, or lift a fence. It asks the API server alone, with
// the Job's own rights, so it also works while no controller runs. It looks for a while: the view of what
// nodes hold (VolumeLocks) is a second late, and a new account's rights may be, too. Changes nothing; may be
// repeated. One thread.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fencing/kube/kube_client.h"
#include "plugin/admin_client.h"

namespace lunkeeper {

// One volume on one node, or one that is being deleted.
struct VolumeInUse {
  std::string volume;  // its PersistentVolume; without one, its id
  std::string claim;   // "namespace/name"; empty: none
  std::string node;
  std::vector<std::string> pods;  // "namespace/name"; none: the node holds it without one
  bool is_being_deleted = false;  // without a node
};

// In order of volume and node. Pods that have ended and are not being deleted, and those without a node, use
// nothing.
absl::StatusOr<std::vector<VolumeInUse>> FindUsedVolumes(kube::KubeClient& client, absl::Time deadline);

struct FencedNode {
  std::string fence;                 // the NodeFence's name
  std::vector<std::string> kept_by;  // the fence is over: only these finalizers of others keep its object
};

// All NodeFences: of a node that is gone, no volume is used any more.
absl::StatusOr<std::vector<FencedNode>> FindFencedNodes(kube::KubeClient& client, absl::Time deadline);

// Looks each `every`. FAILED_PRECONDITION: at the end of `settles` volumes were used, by those who are named,
// or nodes were fenced. Another error: until the deadline it could not be found out.
struct UninstallCheckTimes {
  absl::Duration settles = absl::Seconds(30), timeout = absl::Seconds(60), every = absl::Seconds(1);
};
absl::Status CheckUninstall(kube::KubeClient& client, const UninstallCheckTimes& times);

void AddUninstallCheckCommand(CLI::App* app, int* exit_code, const MakeClient& cluster);

}  // namespace lunkeeper
