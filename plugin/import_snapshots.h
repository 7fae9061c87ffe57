#pragma once
// Which snapshots of the arrays a cluster has lost, and the objects by which it gets them back. The array
// keeps a snapshot's volume and the name that the snapshotter gave it, which has the uid of the
// VolumeSnapshot in it. What that was called is lost with the cluster; but its namespace was that of the
// volume's claim. So, where no one says more, the VolumeSnapshot has the array's name, in the namespace of
// the claim that the volume has or gets. Pure functions, thread-safe.
//
// Every VolumeSnapshotContent is kept for good (Retain) and reserved for one VolumeSnapshot, as the
// PersistentVolumes are for claims (import_plan.h).

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fencing/kube/json.h"
#include "plugin/admin.pb.h"
#include "plugin/import_plan.h"

namespace lunkeeper {

// What was read, the arrays' snapshots first: one that gets its object meanwhile is not taken for lost.
struct SnapshotFacts {
  admin::v1::ListSnapshotsResponse snapshots;
  std::vector<kube::Json> contents, volume_snapshots, classes;
  // Namespaces by the ids of volumes whose claims are known.
  std::map<std::string, std::string> spaces;
  std::map<std::string, std::string> modes;  // as FindVolumeModes
};

struct SnapshotWishes {
  std::string snapshot_class;                // empty: the only one there is, or none
  std::map<std::string, std::string> names;  // "namespace/name" by the snapshot's id
};

struct LostSnapshot {
  admin::v1::SnapshotStatus status;
  std::string content;  // the VolumeSnapshotContent: the one it had, or its id where that cannot be
  // It is there already, and only the VolumeSnapshot that it is reserved for is not: an import broke off.
  bool has_content = false;
  // "namespace/name" of the VolumeSnapshots that it could be for; none: nobody knows any.
  std::set<std::string> possible;
  // Anybody may have written the only possible one: it names the content, and no claim's namespace is known.
  bool is_doubtful = false;
};

// Namespaces of the claims that the cluster's volumes have, and of the claims that lost volumes are for.
std::map<std::string, std::string> FindSpaces(const ImportFacts& facts, const ImportWishes& wishes);

// Snapshots that no VolumeSnapshotContent refers to. `asked`: of these; empty: of all. One that is being made
// right now is none of them.
std::vector<LostSnapshot> FindLostSnapshots(const SnapshotFacts& facts, const SnapshotWishes& wishes,
                                            const std::set<std::string>& asked);

// Adds a VolumeSnapshotContent for each of `lost`, and its VolumeSnapshot where that is known and not there,
// or why not. INVALID_ARGUMENT: a VolumeSnapshot is not written NAMESPACE/NAME, or is for two of them, or
// there is no such class.
absl::Status PlanSnapshots(const std::vector<LostSnapshot>& lost, const SnapshotFacts& facts,
                           const SnapshotWishes& wishes, ImportPlan& plan);

// Snapshots of a group, which is not imported, and any of `asked` that are not lost: a sentence each.
std::vector<std::string> WarnOfSnapshots(const std::vector<LostSnapshot>& lost,
                                         const std::set<std::string>& asked, const SnapshotFacts& facts);

}  // namespace lunkeeper
