// The objects are as external-provisioner makes them from what CreateVolume answers, but for these:
//   persistentVolumeReclaimPolicy   Retain, whatever the class says: a mistake here must delete nothing
//   claimRef                        without a uid, so that Kubernetes binds whichever claim of that name
//   volumeAttributes                without the provisioner's own mark, which nobody reads
#include "plugin/import_plan.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/driver.h"
#include "base/status_macros.h"
#include "devices/array/volume_uses.h"
#include "plugin/claim_fit.h"
#include "plugin/object_names.h"

namespace lunkeeper {
namespace {

using admin::v1::VolumeStatus;
using kube::FieldAt;
using kube::Json;
using kube::TextAt;

const Json* FindClaim(const ImportFacts& facts, const std::string& text) {
  for (const Json& claim : facts.claims)
    if (NamesText(FieldAt(claim, {"metadata"})) == text) return &claim;
  return nullptr;
}

// The provisioner calls a volume after its claim's uid, and makes the PersistentVolume when it has an answer.
// Null: it is not being made.
const Json* FindMaker(const VolumeStatus& volume, const ImportFacts& facts) {
  for (const Json& claim : facts.claims) {
    const std::string uid = TextAt(claim, {"metadata", "uid"});
    if (!uid.empty() && absl::EndsWith(volume.name(), uid) && TextAt(claim, {"spec", "volumeName"}).empty())
      return &claim;
  }
  return nullptr;
}

// Claims that name the PersistentVolume which is missing: their data are in this volume.
std::vector<std::string> FindWaitingClaims(const std::string& volume_name, const ImportFacts& facts) {
  std::vector<std::string> waiting;
  for (const Json& claim : facts.claims)
    if (TextAt(claim, {"spec", "volumeName"}) == volume_name)
      waiting.push_back(NamesText(FieldAt(claim, {"metadata"})));
  return waiting;
}

// As people write it, where it is a round number; the API server keeps the text.
std::string QuantityOf(uint64_t bytes) {
  if (bytes % (1ULL << 30) == 0) return absl::StrCat(bytes >> 30, "Gi");
  return bytes % (1ULL << 20) == 0 ? absl::StrCat(bytes >> 20, "Mi") : absl::StrCat(bytes);
}

// Volumes of Kubernetes are for one mode; a volume of another orchestrator that is for both has a file
// system.
bool IsBlock(const VolumeUses& uses) {
  VolumeUses any_file_system;
  for (const Access access : {Access::kExclusive, Access::kReadOnly, Access::kSharedWrite})
    any_file_system.Add(access, VolumeMode::kFilesystem);
  return !uses.empty() && (uses.bits() & any_file_system.bits()) == 0;
}

// What it was made for; one node, where that is not known.
Json AccessModesOf(const VolumeUses& uses) {
  constexpr std::pair<Access, const char*> kModes[] = {{Access::kExclusive, "ReadWriteOnce"},
                                                       {Access::kReadOnly, "ReadOnlyMany"},
                                                       {Access::kSharedWrite, "ReadWriteMany"}};
  Json modes = Json::array();
  for (const auto& [access, mode] : kModes) {
    VolumeUses either;
    either.Add(access, VolumeMode::kAny);
    if ((uses.bits() & either.bits()) != 0) modes.push_back(mode);
  }
  if (modes.empty()) modes.push_back("ReadWriteOnce");
  return modes;
}

// As its claim has them, if there is one and the volume can be either: nobody knows what it was made for, or
// it was for one node, which ReadWriteOncePod is, too.
Json AccessModesFor(const VolumeUses& uses, const Json* claim) {
  Json modes = AccessModesOf(uses);
  if (claim == nullptr) return modes;
  const Json& wanted = FieldAt(*claim, {"spec", "accessModes"});
  const bool one_pod = wanted == Json::array({kReadWriteOncePod}) && modes[0] == "ReadWriteOnce";
  return one_pod || (uses.empty() && wanted.is_array()) ? wanted : modes;
}
std::string VolumeModeFor(const VolumeUses& uses, const Json* claim) {
  if (uses.empty() && claim != nullptr) return VolumeModeOf(*claim);
  return IsBlock(uses) ? kBlockMode : kFilesystemMode;
}

// Where the array is reached: a pod elsewhere would never get its volume.
Json NodeAffinityFor(const VolumeStatus& volume) {
  Json expressions = Json::array();
  for (const auto& [key, value] : volume.topology())
    expressions.push_back({{"key", key}, {"operator", "In"}, {"values", Json::array({value})}});
  const Json term = {{"matchExpressions", expressions}};
  return {{"required", {{"nodeSelectorTerms", Json::array({term})}}}};
}

// What becomes of one volume: the claim that it is for, which may be there, and the class of both.
struct ClaimPlace {
  std::string space, claim, storage_class;
  const Json* there = nullptr;
  Json mount_options = {};  // of the class; null: none
  bool is_known = false;    // that it is for this claim; otherwise it is only reserved
};

Json MakePersistentVolume(const LostVolume& lost, const ClaimPlace& place) {
  const VolumeStatus& volume = lost.status;
  const VolumeUses uses(volume.uses());
  const std::string mode = VolumeModeFor(uses, place.there);
  Json csi = {{"driver", kDriverName}, {"volumeHandle", volume.id()}};
  for (const auto& [key, value] : volume.context()) csi["volumeAttributes"][key] = value;
  if (!volume.fs_type().empty() && mode == kFilesystemMode) csi["fsType"] = volume.fs_type();
  Json spec = {{"capacity", {{"storage", QuantityOf(volume.size_bytes())}}},
               {"accessModes", AccessModesFor(uses, place.there)},
               {"volumeMode", mode},
               {"persistentVolumeReclaimPolicy", "Retain"},
               {"storageClassName", place.storage_class},
               {"claimRef",
                {{"apiVersion", "v1"},
                 {"kind", "PersistentVolumeClaim"},
                 {"namespace", place.space},
                 {"name", place.claim}}},
               {"csi", std::move(csi)},
               {"nodeAffinity", NodeAffinityFor(volume)}};
  // A claim that was bound before is bound again to a PersistentVolume that names its uid alone.
  if (place.there != nullptr &&
      !TextAt(*place.there, {"metadata", "annotations", "pv.kubernetes.io/bind-completed"}).empty())
    spec["claimRef"]["uid"] = TextAt(*place.there, {"metadata", "uid"});
  if (place.mount_options.is_array() && mode == kFilesystemMode) spec["mountOptions"] = place.mount_options;
  // Otherwise the claim would not be bound: both must name the same one.
  const std::string attributes =
      place.there == nullptr ? "" : TextAt(*place.there, {"spec", "volumeAttributesClassName"});
  if (!attributes.empty()) spec["volumeAttributesClassName"] = attributes;
  return {{"apiVersion", "v1"},
          {"kind", "PersistentVolume"},
          {"metadata",
           {{"name", lost.name}, {"annotations", {{"pv.kubernetes.io/provisioned-by", kDriverName}}}}},
          {"spec", std::move(spec)}};
}

Json MakeClaim(const Json& persistent_volume, const ClaimPlace& place) {
  const Json& spec = persistent_volume["spec"];
  return {{"apiVersion", "v1"},
          {"kind", "PersistentVolumeClaim"},
          {"metadata", {{"namespace", place.space}, {"name", place.claim}}},
          {"spec",
           {{"accessModes", Json::array({spec["accessModes"][0]})},
            {"volumeMode", spec["volumeMode"]},
            {"storageClassName", place.storage_class},
            {"volumeName", ObjectName(persistent_volume)},
            {"resources", {{"requests", spec["capacity"]}}}}}};
}

// The class that was asked for, or the only one that could have made the volume.
absl::StatusOr<const Json*> FindClass(const LostVolume& lost, const ImportFacts& facts,
                                      const std::string& wanted) {
  const Json* found = nullptr;
  std::vector<std::string> names;
  for (const Json& each : facts.storage_classes) {
    const std::string array = TextAt(each, {"parameters", "array"});
    if (TextAt(each, {"provisioner"}) != kDriverName) continue;
    if (!array.empty() && array != lost.status.array()) continue;
    if (!wanted.empty() && ObjectName(each) != wanted) continue;
    found = &each;
    names.push_back(ObjectName(each));
  }
  if (names.size() == 1) return found;
  if (!names.empty())
    return absl::FailedPreconditionError(
        absl::StrCat("volume ", lost.status.id(), " could be of the StorageClasses ",
                     absl::StrJoin(names, ", "), ": say which with --storage-class"));
  return absl::FailedPreconditionError(absl::StrCat("this cluster has no StorageClass ", wanted,
                                                    wanted.empty() ? "" : " ", "of Lunkeeper for array ",
                                                    lost.status.array()));
}

// OK if nothing keeps the claim from being bound to this PersistentVolume. A claim is bound once and for all,
// so a mistake here would be seen only by a pod that waits for ever.
absl::Status CheckFree(const LostVolume& lost, const ImportFacts& facts, const std::string& claim) {
  if (!lost.waiting.empty() && std::ranges::find(lost.waiting, claim) == lost.waiting.end() &&
      claim != lost.status.claim())
    return absl::FailedPreconditionError(absl::StrCat("claim ", lost.waiting[0], " waits for volume ",
                                                      lost.status.id(), ": it cannot be given to ", claim));
  const Json* there = FindClaim(facts, claim);
  const std::string has = there == nullptr ? "" : TextAt(*there, {"spec", "volumeName"});
  if (!has.empty() && has != lost.name)
    return absl::FailedPreconditionError(absl::StrCat("claim ", claim, " has PersistentVolume ", has,
                                                      ": volume ", lost.status.id(),
                                                      " cannot be given to it"));
  for (const Json& other : facts.persistent_volumes) {
    const Json& reserved = FieldAt(other, {"spec", "claimRef"});
    if (!reserved.is_null() && NamesText(reserved) == claim && TextAt(reserved, {"uid"}).empty())
      return absl::FailedPreconditionError(
          absl::StrCat("PersistentVolume ", ObjectName(other), " is reserved for claim ", claim, " already"));
  }
  return absl::OkStatus();
}

// The claim that a volume was made for is only a guess. Of two volumes that were made for one, one after the
// other, a person has to say which is meant; and a claim that has another volume by now keeps it.
void GuessClaims(const ImportFacts& facts, const std::set<std::string>& referred, const ImportWishes& wishes,
                 std::vector<LostVolume>& lost) {
  std::map<std::string, int> wanted;
  for (const auto& [volume, claim] : wishes.claims) ++wanted[claim];
  for (const VolumeStatus& volume : facts.volumes.volumes())
    if (!referred.contains(volume.id()) && !wishes.claims.contains(volume.id())) ++wanted[volume.claim()];
  for (LostVolume& each : lost) {
    const std::string& claim = each.status.claim();
    const bool is_free = wanted[claim] == 1 && SplitNames(claim) && CheckFree(each, facts, claim).ok();
    if (is_free && !wishes.claims.contains(each.status.id())) each.guess = claim;
  }
}

// Empty: nobody knows. A claim that waits may have been written by anybody, so it goes before the one that
// the volume was made for only where a person says so.
absl::StatusOr<std::string> FindClaimFor(const LostVolume& lost, const ImportWishes& wishes) {
  const std::set<std::string> possible = ClaimsFor(lost, wishes);
  if (possible.empty()) return "";
  if (possible.size() == 1) return *possible.begin();
  return absl::FailedPreconditionError(absl::StrCat(
      "volume ", lost.status.id(), " could be for any of the claims ", absl::StrJoin(possible, ", "),
      ", which wait for it or which it was made for: say which gets it, with --claim"));
}

absl::StatusOr<ClaimPlace> FindPlace(const LostVolume& lost, const ImportFacts& facts,
                                     const ImportWishes& wishes) {
  ASSIGN_OR_RETURN(std::string claim, FindClaimFor(lost, wishes));
  const bool is_known = !claim.empty();
  if (!is_known) claim = absl::StrCat(kReservedNamespace, "/", lost.name);
  const auto parts = SplitNames(claim);
  if (!parts)
    return absl::InvalidArgumentError(
        absl::StrCat("--claim ", lost.status.id(), "=", claim, ": want VOLUME=NAMESPACE/NAME"));
  RETURN_IF_ERROR(CheckFree(lost, facts, claim));
  ClaimPlace place = {
      .space = parts->first, .claim = parts->second, .storage_class = {}, .there = FindClaim(facts, claim)};
  place.is_known = is_known;
  // A claim that is there is bound in its own class alone.
  const std::string wanted =
      place.there == nullptr ? wishes.storage_class : TextAt(*place.there, {"spec", "storageClassName"});
  ASSIGN_OR_RETURN(const Json* storage_class, FindClass(lost, facts, wanted));
  place.storage_class = ObjectName(*storage_class);
  place.mount_options = FieldAt(*storage_class, {"mountOptions"});
  return place;
}

// A creation that was given up on one array and begun anew on another leaves two volumes of one name, and the
// claim's data are in one of them. Returns their ids.
std::set<std::string> FindTwins(const std::vector<LostVolume>& lost, ImportPlan& plan) {
  std::map<std::string, const LostVolume*> by_name;
  std::set<std::string> twins;
  for (const LostVolume& each : lost) {
    const auto [found, is_new] = by_name.try_emplace(each.status.name(), &each);
    if (is_new || found->second->name != each.status.name()) continue;
    twins.insert({found->second->status.id(), each.status.id()});
    plan.unclear.push_back(absl::StrCat(
        "volumes ", found->second->status.id(), " and ", each.status.id(), " are both called ",
        each.status.name(), ": look which has the data, and import that one first, alone, by its id"));
  }
  return twins;
}

absl::StatusOr<std::vector<Json>> MakeManifests(const LostVolume& lost, const ImportFacts& facts,
                                                const ImportWishes& wishes, std::set<std::string>& claims) {
  ASSIGN_OR_RETURN(const ClaimPlace place, FindPlace(lost, facts, wishes));
  const std::string claim = absl::StrCat(place.space, "/", place.claim);
  if (claims.contains(claim))
    return absl::InvalidArgumentError(absl::StrCat("claim ", claim, " is named for two volumes"));
  std::vector<Json> manifests = {MakePersistentVolume(lost, place)};
  if (place.there != nullptr) RETURN_IF_ERROR(CheckFits(*place.there, manifests[0]));
  if (place.is_known && place.there == nullptr) manifests.push_back(MakeClaim(manifests[0], place));
  claims.insert(claim);
  return manifests;
}

}  // namespace

std::vector<LostVolume> FindLostVolumes(const ImportFacts& facts, const ImportWishes& wishes,
                                        const std::set<std::string>& asked) {
  std::set<std::string> referred, taken;
  for (const Json& each : facts.persistent_volumes) {
    taken.insert(ObjectName(each));
    if (TextAt(each, {"spec", "csi", "driver"}) == kDriverName)
      referred.insert(TextAt(each, {"spec", "csi", "volumeHandle"}));
  }
  std::vector<LostVolume> lost;
  for (const VolumeStatus& volume : facts.volumes.volumes()) {
    if (!asked.empty() && !asked.contains(volume.id())) continue;
    if (referred.contains(volume.id()) || FindMaker(volume, facts) != nullptr) continue;
    // Another orchestrator's name may be none for Kubernetes, or be taken. The id is neither.
    const bool fits = IsObjectName(volume.name()) && taken.insert(volume.name()).second;
    const std::string name = fits ? volume.name() : volume.id();
    lost.push_back({volume, name, FindWaitingClaims(name, facts), ""});
  }
  GuessClaims(facts, referred, wishes, lost);
  return lost;
}

std::map<std::string, std::string> FindVolumeModes(const ImportFacts& facts) {
  std::map<std::string, std::string> modes;
  for (const Json& each : facts.persistent_volumes)
    if (TextAt(each, {"spec", "csi", "driver"}) == kDriverName)
      modes[TextAt(each, {"spec", "csi", "volumeHandle"})] = VolumeModeOf(each);
  for (const VolumeStatus& volume : facts.volumes.volumes())
    if (const VolumeUses uses(volume.uses()); !uses.empty())
      modes[volume.id()] = VolumeModeFor(uses, nullptr);
  return modes;
}

std::set<std::string> ClaimsFor(const LostVolume& lost, const ImportWishes& wishes) {
  const auto wish = wishes.claims.find(lost.status.id());
  if (wish != wishes.claims.end()) return {wish->second};
  std::set<std::string> claims(lost.waiting.begin(), lost.waiting.end());
  if (!lost.guess.empty()) claims.insert(lost.guess);
  return claims;
}

std::vector<std::string> WarnOfHolders(const std::vector<LostVolume>& lost, const ImportFacts& facts) {
  std::vector<std::string> warnings;
  for (const LostVolume& each : lost)
    for (const std::string& node : each.status.nodes())
      if (!facts.nodes.contains(node))
        warnings.push_back(absl::StrCat("volume ", each.status.id(), " is still held by node ", node,
                                        ", which this cluster does not know. Make sure that it is off or "
                                        "installed anew, then run: lunkeeper "
                                        "fence ",
                                        node, " --array ", each.status.array()));
  return warnings;
}

std::vector<std::string> WarnOfDoubt(const std::vector<LostVolume>& lost, const ImportWishes& wishes) {
  std::vector<std::string> warnings;
  for (const LostVolume& each : lost)
    if (each.guess.empty() && each.waiting.empty() && !each.status.claim().empty() &&
        !wishes.claims.contains(each.status.id()))
      warnings.push_back(absl::StrCat("volume ", each.status.id(), " was made for claim ",
                                      each.status.claim(),
                                      ", which has another volume or could get another one. Say which claim "
                                      "it is for: --claim ",
                                      each.status.id(), "=NAMESPACE/NAME"));
  return warnings;
}

std::vector<std::string> WarnOfKept(const std::set<std::string>& asked, const ImportFacts& facts) {
  std::vector<std::string> warnings;
  for (const Json& each : facts.persistent_volumes) {
    const std::string id = TextAt(each, {"spec", "csi", "volumeHandle"});
    if (TextAt(each, {"spec", "csi", "driver"}) != kDriverName || !asked.contains(id)) continue;
    const Json& reserved = FieldAt(each, {"spec", "claimRef"});
    warnings.push_back(absl::StrCat("volume ", id, " has PersistentVolume ", ObjectName(each),
                                    " already, for ",
                                    reserved.is_null() ? "any claim" : "claim " + NamesText(reserved)));
  }
  for (const VolumeStatus& volume : facts.volumes.volumes()) {
    const Json* const claim = asked.contains(volume.id()) ? FindMaker(volume, facts) : nullptr;
    if (claim == nullptr) continue;
    warnings.push_back(absl::StrCat("volume ", volume.id(), " is being made for claim ",
                                    NamesText(FieldAt(*claim, {"metadata"}))));
  }
  return warnings;
}

absl::StatusOr<ImportPlan> PlanImport(const std::vector<LostVolume>& lost, const ImportFacts& facts,
                                      const ImportWishes& wishes) {
  ImportPlan plan;
  const std::set<std::string> twins = FindTwins(lost, plan);
  std::set<std::string> claims;
  for (const LostVolume& each : lost) {
    if (twins.contains(each.status.id())) continue;
    const auto manifests = MakeManifests(each, facts, wishes, claims);
    if (absl::IsInvalidArgument(manifests.status())) return manifests.status();
    if (manifests.ok())
      std::copy(manifests->begin(), manifests->end(), std::back_inserter(plan.manifests));
    else
      plan.unclear.emplace_back(manifests.status().message());
  }
  return plan;
}

}  // namespace lunkeeper
