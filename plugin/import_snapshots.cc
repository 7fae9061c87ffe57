// The objects are as Kubernetes wants those of snapshots that it did not make itself: a content with the
// snapshot's handle, and a VolumeSnapshot that names the content. A content that the snapshotter made itself
// is called snapcontent-UID, and its snapshot at the array snapshot-UID; so the name is known that it had.
//
// Who gets a snapshot, the first that there is:
//   the VolumeSnapshot that the operator names
//   one that names the content, in the namespace of the volume's claim
//   one that was bound to the content, while no claim is known
//   one of the array's name, in the namespace of the volume's claim
//   nobody: the content is reserved in a namespace that need not exist
// Any other that names the content is asked about, as anybody may write one, and so is a second one. The
// content comes before the VolumeSnapshot in the list, since `kubectl apply` goes by it: the snapshot
// controller would report an error for one whose content is not there yet.
#include "plugin/import_snapshots.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/driver.h"
#include "base/status_macros.h"
#include "plugin/object_names.h"

namespace lunkeeper {
namespace {

using admin::v1::SnapshotStatus;
using kube::FieldAt;
using kube::Json;
using kube::TextAt;

constexpr char kSnapshotApi[] = "snapshot.storage.k8s.io/v1";

// Other drivers' contents may have handles that look like ours.
bool IsOurs(const Json& content) { return TextAt(content, {"spec", "driver"}) == kDriverName; }

// A content that the snapshotter made has its handle in its status alone.
std::string HandleOf(const Json& content) {
  const std::string given = TextAt(content, {"spec", "source", "snapshotHandle"});
  return given.empty() ? TextAt(content, {"status", "snapshotHandle"}) : given;
}

std::string ReferenceOf(const Json& content) {
  return NamesText(FieldAt(content, {"spec", "volumeSnapshotRef"}));
}

const Json* FindVolumeSnapshot(const SnapshotFacts& facts, const std::string& names) {
  for (const Json& each : facts.volume_snapshots)
    if (NamesText(FieldAt(each, {"metadata"})) == names) return &each;
  return nullptr;
}

const Json* FindContent(const SnapshotFacts& facts, const std::string& id) {
  for (const Json& content : facts.contents)
    if (IsOurs(content) && HandleOf(content) == id) return &content;
  return nullptr;
}

// Empty: another orchestrator, or a group's snapshot, whose name is made by the array.
std::string UsualContent(const SnapshotStatus& snapshot) {
  absl::string_view uid = snapshot.name();
  return absl::ConsumePrefix(&uid, "snapshot-") ? absl::StrCat("snapcontent-", uid) : "";
}

// The snapshotter makes the content before it asks the array.
bool IsBeingMade(const SnapshotStatus& snapshot, const SnapshotFacts& facts) {
  return std::ranges::any_of(facts.contents, [&](const Json& content) {
    return IsOurs(content) && HandleOf(content).empty() && ObjectName(content) == UsualContent(snapshot);
  });
}

// Users write no status.
bool WasBound(const Json& volume_snapshot, const std::string& content) {
  return TextAt(volume_snapshot, {"status", "boundVolumeSnapshotContentName"}) == content;
}

// VolumeSnapshots name the content that is missing: as their source, or as what they were bound to.
bool IsWaiting(const Json& volume_snapshot, const std::string& content) {
  return TextAt(volume_snapshot, {"spec", "source", "volumeSnapshotContentName"}) == content ||
         WasBound(volume_snapshot, content);
}

// VolumeSnapshots that wait, and the one of the array's name in the namespace that is known, unless one waits
// there.
void FindPossible(const SnapshotFacts& facts, const SnapshotWishes& wishes, LostSnapshot& lost) {
  std::set<std::string>& possible = lost.possible;
  if (const auto wish = wishes.names.find(lost.status.id()); wish != wishes.names.end()) {
    possible = {wish->second};
    return;
  }
  const auto space = facts.spaces.find(lost.status.volume());
  bool waits_there = false;
  for (const Json& each : facts.volume_snapshots) {
    if (!IsWaiting(each, lost.content)) continue;
    possible.insert(NamesText(FieldAt(each, {"metadata"})));
    lost.is_doubtful |= space == facts.spaces.end() && !WasBound(each, lost.content);
    waits_there |= space != facts.spaces.end() && TextAt(each, {"metadata", "namespace"}) == space->second;
  }
  if (space == facts.spaces.end() || waits_there) return;
  const std::string& name = lost.status.name();
  possible.insert(absl::StrCat(space->second, "/", IsObjectName(name) ? name : lost.status.id()));
}

// Of an import that broke off: the content was applied, never bound, and its VolumeSnapshot is not there.
bool IsHalfDone(const Json& content, const SnapshotFacts& facts) {
  const Json& reference = FieldAt(content, {"spec", "volumeSnapshotRef"});
  return !TextAt(content, {"spec", "source", "snapshotHandle"}).empty() &&
         TextAt(reference, {"uid"}).empty() && TextAt(reference, {"namespace"}) != kReservedNamespace &&
         FindVolumeSnapshot(facts, NamesText(reference)) == nullptr;
}

// Empty: there is none, or nobody said which of several.
absl::StatusOr<std::string> ChooseClass(const SnapshotFacts& facts, const std::string& wanted) {
  std::vector<std::string> names;
  for (const Json& each : facts.classes)
    if (TextAt(each, {"driver"}) == kDriverName) names.push_back(ObjectName(each));
  if (wanted.empty()) return names.size() == 1 ? names[0] : "";
  if (std::ranges::find(names, wanted) != names.end()) return wanted;
  return absl::InvalidArgumentError(absl::StrCat("--snapshot-class ", wanted,
                                                 ": Lunkeeper's VolumeSnapshotClasses here are ",
                                                 names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

Json MakeContent(const LostSnapshot& lost, const std::string& names, const std::string& snapshot_class,
                 const SnapshotFacts& facts) {
  const auto parts = SplitNames(names);
  Json spec = {{"driver", kDriverName},
               {"deletionPolicy", "Retain"},
               {"source", {{"snapshotHandle", lost.status.id()}}},
               {"volumeSnapshotRef",
                {{"apiVersion", kSnapshotApi},
                 {"kind", "VolumeSnapshot"},
                 {"namespace", parts->first},
                 {"name", parts->second}}}};
  if (!snapshot_class.empty()) spec["volumeSnapshotClassName"] = snapshot_class;
  // Without it the provisioner would let anybody mount as a file system what a pod has written to a device.
  if (const auto mode = facts.modes.find(lost.status.volume()); mode != facts.modes.end())
    spec["sourceVolumeMode"] = mode->second;
  // One that was bound before is bound again to a content that names its uid alone.
  const Json* there = FindVolumeSnapshot(facts, names);
  if (there != nullptr && !TextAt(*there, {"status", "boundVolumeSnapshotContentName"}).empty())
    spec["volumeSnapshotRef"]["uid"] = TextAt(*there, {"metadata", "uid"});
  return {{"apiVersion", kSnapshotApi},
          {"kind", "VolumeSnapshotContent"},
          {"metadata", {{"name", lost.content}}},
          {"spec", std::move(spec)}};
}

Json MakeVolumeSnapshot(const LostSnapshot& lost, const std::string& names,
                        const std::string& snapshot_class) {
  const auto parts = SplitNames(names);
  Json spec = {{"source", {{"volumeSnapshotContentName", lost.content}}}};
  if (!snapshot_class.empty()) spec["volumeSnapshotClassName"] = snapshot_class;
  return {{"apiVersion", kSnapshotApi},
          {"kind", "VolumeSnapshot"},
          {"metadata", {{"namespace", parts->first}, {"name", parts->second}}},
          {"spec", std::move(spec)}};
}

// OK, or why Kubernetes would not bind the two: it would say so in an event of the VolumeSnapshot alone.
absl::Status CheckUnclaimed(const LostSnapshot& lost, const SnapshotFacts& facts, const std::string& names) {
  const Json* own = FindContent(facts, lost.status.id());
  if (own != nullptr && ReferenceOf(*own) != names)
    return absl::FailedPreconditionError(absl::StrCat(
        "VolumeSnapshotContent ", lost.content, " is reserved for VolumeSnapshot ", ReferenceOf(*own),
        " already: give it to that, or delete it to give snapshot ", lost.status.id(), " to ", names));
  const Json* there = FindVolumeSnapshot(facts, names);
  if (there != nullptr && !IsWaiting(*there, lost.content))
    return absl::FailedPreconditionError(
        absl::StrCat("VolumeSnapshot ", names, " is there already, and is not of snapshot ", lost.status.id(),
                     ": name another one, with --snapshot ", lost.status.id(), "=NAMESPACE/NAME"));
  for (const Json& content : facts.contents)
    if (!lost.has_content && ReferenceOf(content) == names && ObjectName(content) != lost.content)
      return absl::FailedPreconditionError(
          absl::StrCat("VolumeSnapshotContent ", ObjectName(content), " is reserved for VolumeSnapshot ",
                       names, " already: snapshot ", lost.status.id(), " cannot be given to it"));
  return absl::OkStatus();
}

// The manifests of one snapshot. FAILED_PRECONDITION: it is not clear which.
absl::StatusOr<std::vector<Json>> MakeManifestsOf(const LostSnapshot& lost, const SnapshotFacts& facts,
                                                  const std::string& snapshot_class,
                                                  std::set<std::string>& taken) {
  if (lost.possible.size() > 1)
    return absl::FailedPreconditionError(
        absl::StrCat("snapshot ", lost.status.id(), " could be for any of the VolumeSnapshots ",
                     absl::StrJoin(lost.possible, ", "), ": say which gets it, with --snapshot"));
  if (lost.is_doubtful)
    return absl::FailedPreconditionError(absl::StrCat(
        "snapshot ", lost.status.id(), ": anybody may have written VolumeSnapshot ", *lost.possible.begin(),
        ", which names its content, and its volume's claim is not "
        "known: say who gets it, with --snapshot"));
  const bool is_known = !lost.possible.empty();
  const std::string names =
      is_known ? *lost.possible.begin() : absl::StrCat(kReservedNamespace, "/", lost.content);
  if (!SplitNames(names))
    return absl::InvalidArgumentError(
        absl::StrCat("--snapshot ", lost.status.id(), "=", names, ": want SNAPSHOT=NAMESPACE/NAME"));
  RETURN_IF_ERROR(CheckUnclaimed(lost, facts, names));
  if (!taken.insert(names).second)
    return absl::InvalidArgumentError(absl::StrCat("VolumeSnapshot ", names, " is for two snapshots, of ",
                                                   lost.status.id(),
                                                   " and another one: say which gets it, with --snapshot"));
  const Json* there = FindVolumeSnapshot(facts, names);
  std::vector<Json> manifests;
  if (!lost.has_content) manifests.push_back(MakeContent(lost, names, snapshot_class, facts));
  if (is_known && there == nullptr) manifests.push_back(MakeVolumeSnapshot(lost, names, snapshot_class));
  return manifests;
}

}  // namespace

std::map<std::string, std::string> FindSpaces(const ImportFacts& facts, const ImportWishes& wishes) {
  std::map<std::string, std::string> spaces;
  for (const LostVolume& lost : FindLostVolumes(facts, wishes, {})) {
    const std::set<std::string> claims = ClaimsFor(lost, wishes);
    const auto parts = claims.size() == 1 ? SplitNames(*claims.begin()) : std::nullopt;
    if (parts) spaces[lost.status.id()] = parts->first;
  }
  for (const Json& each : facts.persistent_volumes) {
    const std::string space = TextAt(each, {"spec", "claimRef", "namespace"});
    if (TextAt(each, {"spec", "csi", "driver"}) == kDriverName && !space.empty() &&
        space != kReservedNamespace)
      spaces[TextAt(each, {"spec", "csi", "volumeHandle"})] = space;
  }
  return spaces;
}

std::vector<LostSnapshot> FindLostSnapshots(const SnapshotFacts& facts, const SnapshotWishes& wishes,
                                            const std::set<std::string>& asked) {
  std::set<std::string> taken;
  for (const Json& content : facts.contents) taken.insert(ObjectName(content));
  std::vector<LostSnapshot> lost;
  for (const SnapshotStatus& snapshot : facts.snapshots.snapshots()) {
    if (!asked.empty() && !asked.contains(snapshot.id())) continue;
    LostSnapshot each = {.status = snapshot, .content = UsualContent(snapshot), .possible = {}};
    if (const Json* content = FindContent(facts, snapshot.id())) {
      if (!IsHalfDone(*content, facts)) continue;
      each.content = ObjectName(*content);
      each.has_content = true;
      const auto wish = wishes.names.find(snapshot.id());
      each.possible = {wish == wishes.names.end() ? ReferenceOf(*content) : wish->second};
    } else if (IsBeingMade(snapshot, facts)) {
      continue;
    } else {
      if (!IsObjectName(each.content) || !taken.insert(each.content).second) each.content = snapshot.id();
      FindPossible(facts, wishes, each);
    }
    lost.push_back(std::move(each));
  }
  return lost;
}

absl::Status PlanSnapshots(const std::vector<LostSnapshot>& lost, const SnapshotFacts& facts,
                           const SnapshotWishes& wishes, ImportPlan& plan) {
  ASSIGN_OR_RETURN(const std::string snapshot_class, ChooseClass(facts, wishes.snapshot_class));
  std::set<std::string> taken;
  for (const LostSnapshot& each : lost) {
    const auto manifests = MakeManifestsOf(each, facts, snapshot_class, taken);
    if (absl::IsInvalidArgument(manifests.status())) return manifests.status();
    if (manifests.ok())
      plan.manifests.insert(plan.manifests.end(), manifests->begin(), manifests->end());
    else
      plan.unclear.emplace_back(manifests.status().message());
  }
  return absl::OkStatus();
}

std::vector<std::string> WarnOfSnapshots(const std::vector<LostSnapshot>& lost,
                                         const std::set<std::string>& asked, const SnapshotFacts& facts) {
  std::vector<std::string> warnings;
  std::map<std::string, std::vector<std::string>> groups;
  for (const LostSnapshot& each : lost)
    if (!each.status.group().empty()) groups[each.status.group()].push_back(each.status.id());
  for (const auto& [group, members] : groups)
    warnings.push_back(
        absl::StrCat("snapshots ", absl::StrJoin(members, ", "), " belong to group ", group,
                     ", and are deleted with that alone: docs/disaster-recovery.md says how to "
                     "take a group back"));
  for (const SnapshotStatus& snapshot : facts.snapshots.snapshots()) {
    if (!asked.contains(snapshot.id())) continue;
    const Json* content = FindContent(facts, snapshot.id());
    if (content != nullptr && !IsHalfDone(*content, facts))
      warnings.push_back(absl::StrCat("snapshot ", snapshot.id(), " has VolumeSnapshotContent ",
                                      ObjectName(*content), " already, for VolumeSnapshot ",
                                      ReferenceOf(*content)));
    else if (content == nullptr && IsBeingMade(snapshot, facts))
      warnings.push_back(absl::StrCat("snapshot ", snapshot.id(), " is being made"));
  }
  return warnings;
}

}  // namespace lunkeeper
