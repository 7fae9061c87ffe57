#pragma once
// Which volumes of the arrays a cluster has lost, and the objects by which it gets them back. The catalogue
// has kept what a volume is, what its PersistentVolume was called and which claim it was first made for. It
// may have got another claim since, so the operator's word goes first, and then a claim that waits for a
// PersistentVolume of this name. Pure functions, thread-safe.
//
// Every PersistentVolume is reserved for one claim. Otherwise the next new claim of its class could be given
// a volume with somebody's data.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fencing/kube/json.h"
#include "plugin/admin.pb.h"

namespace lunkeeper {

// The namespace of the claims that volumes are reserved for while nobody has named one. It need not exist.
inline constexpr char kReservedNamespace[] = "lunkeeper-import";

// What was read, the volumes first: so one that got its PersistentVolume meanwhile is not taken for lost.
struct ImportFacts {
  admin::v1::ListVolumesResponse volumes;
  std::vector<kube::Json> persistent_volumes, claims, storage_classes;
  std::map<std::string, std::string> nodes;  // of this cluster: names by id
};

struct ImportWishes {
  std::string storage_class;                  // empty: the only one that the volume can be of
  std::map<std::string, std::string> claims;  // "namespace/name" by the volume's id
};

struct LostVolume {
  admin::v1::VolumeStatus status;
  std::string name;  // of its PersistentVolume: the one it had, or its id where that cannot be
  // "namespace/name" of each claim that waits for that PersistentVolume. Anybody may write such a claim: of
  // several, only the operator knows whose volume it is.
  std::vector<std::string> waiting;
  std::string guess;  // the claim that it was made for, if it is free and of no other volume; empty: none is
};

// Volumes that no PersistentVolume refers to. `asked`: of these volumes; empty: of all. One that is
// being made for a claim right now is none of them.
std::vector<LostVolume> FindLostVolumes(const ImportFacts& facts, const ImportWishes& wishes,
                                        const std::set<std::string>& asked);

// "Block" or "Filesystem", by the ids of all volumes of which it is known.
std::map<std::string, std::string> FindVolumeModes(const ImportFacts& facts);

// The claims that this volume could be for: the one that is wished, or else each claim that waits
// for it and the one that it was made for. Empty: nobody knows any.
std::set<std::string> ClaimsFor(const LostVolume& lost, const ImportWishes& wishes);

// What an operator should know of them before a pod can use them: a sentence each.
std::vector<std::string> WarnOfHolders(const std::vector<LostVolume>& lost, const ImportFacts& facts);

// The volumes that nobody gets although the array knows the claim that each was made for: a sentence each.
std::vector<std::string> WarnOfDoubt(const std::vector<LostVolume>& lost, const ImportWishes& wishes);

// The volumes among `asked` that are not lost, and whose they are: a sentence each.
std::vector<std::string> WarnOfKept(const std::set<std::string>& asked, const ImportFacts& facts);

struct ImportPlan {
  std::vector<kube::Json> manifests;
  // A sentence for each volume that has none, because a claim has another volume, or would never be bound to
  // this one, or it is not clear which volume, claim or StorageClass is meant.
  std::vector<std::string> unclear;
};

// A PersistentVolume for each of `lost`, and its claim where that is known and not there. INVALID_ARGUMENT: a
// claim is not written NAMESPACE/NAME, or is named twice.
absl::StatusOr<ImportPlan> PlanImport(const std::vector<LostVolume>& lost, const ImportFacts& facts,
                                      const ImportWishes& wishes);

}  // namespace lunkeeper
