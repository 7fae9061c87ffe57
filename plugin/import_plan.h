#pragma once
// Which volumes of the arrays a cluster has lost, and the objects by which it gets them back. The catalogue
// has kept what a volume is and what its PersistentVolume was called, but not its claim: that comes from the
// operator, or from a claim that waits for a PersistentVolume of this name. Pure functions, thread-safe.
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

struct LostVolume {
  admin::v1::VolumeStatus status;
  std::string name;  // of its PersistentVolume: the one it had, or its id where that cannot be
  // "namespace/name" of each claim that waits for that PersistentVolume. Anybody may write such a claim: of
  // several, only the operator knows whose volume it is.
  std::vector<std::string> waiting;
};

// Volumes that no PersistentVolume refers to. `asked`: of these volumes; empty: of all. One that is
// being made for a claim right now is none of them.
std::vector<LostVolume> FindLostVolumes(const ImportFacts& facts, const std::set<std::string>& asked);

// What an operator should know of them before a pod can use them: a sentence each.
std::vector<std::string> WarnOfHolders(const std::vector<LostVolume>& lost, const ImportFacts& facts);

// The volumes among `asked` that are not lost, and whose they are: a sentence each.
std::vector<std::string> WarnOfKept(const std::set<std::string>& asked, const ImportFacts& facts);

struct ImportWishes {
  std::string storage_class;                  // empty: the only one that the volume can be of
  std::map<std::string, std::string> claims;  // "namespace/name" by the volume's id
};

// A PersistentVolume for each of `lost`, and a claim where one is named that is not there. INVALID_ARGUMENT:
// a claim is not written NAMESPACE/NAME, or is named twice. FAILED_PRECONDITION: a claim has another volume,
// or would never be bound to this one, or it is not clear which volume, claim or StorageClass is meant.
absl::StatusOr<std::vector<kube::Json>> MakeManifests(const std::vector<LostVolume>& lost,
                                                      const ImportFacts& facts, const ImportWishes& wishes);

}  // namespace lunkeeper
