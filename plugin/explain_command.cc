// First everything is read (ReadFacts), then explained (ExplainClaim). A claim is followed from the left to
// the right, and each step says what it waits for:
//
//   claim --> StorageClass --> array --> volume --> grant of a node --> pod
#include "plugin/explain_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/driver.h"
#include "base/status_macros.h"
#include "devices/array/arrays.h"
#include "devices/node_id.h"
#include "fencing/kube/list_all.h"
#include "fencing/kube/quantity.h"
#include "plugin/admin_call.h"
#include "plugin/table.h"

namespace lunkeeper {
namespace {

using admin::v1::Admin;
using admin::v1::ArrayStatus;
using kube::FieldAt;
using kube::Json;
using kube::TextAt;
using Sentences = std::vector<std::string>;

std::string NameOf(const Json& object) { return TextAt(object, {"metadata", "name"}); }

// The message of a condition that is not true; empty: it is, or is not there.
std::string UnmetCondition(const Json& object, const std::string& type) {
  for (const Json& condition : FieldAt(object, {"status", "conditions"}))
    if (TextAt(condition, {"type"}) == type && TextAt(condition, {"status"}) != "True")
      return TextAt(condition, {"message"});
  return "";
}

const ArrayStatus* FindArrayStatus(const admin::v1::StatusResponse& status, const std::string& name) {
  for (const ArrayStatus& array : status.arrays())
    if (array.name() == name) return &array;
  return nullptr;
}

// What keeps an array from making a volume, or from serving one.
std::string TroubleOfArray(const admin::v1::StatusResponse& status, const std::string& name) {
  const ArrayStatus* array = FindArrayStatus(status, name);
  if (array == nullptr)
    return absl::StrCat("this controller has no array ", name, "; it has ",
                        absl::StrJoin(status.arrays(), ", ", [](std::string* out, const ArrayStatus& each) {
                          absl::StrAppend(out, each.name());
                        }));
  if (!array->not_serving().empty())
    return absl::StrCat("array ", name, " does not serve: ", array->not_serving());
  return "";
}

Sentences ExplainArraysForNew(const ClaimFacts& facts) {
  const std::string named = TextAt(facts.storage_class, {"parameters", "array"});
  Sentences said;
  for (const ArrayStatus& array : facts.status.arrays()) {
    if (!named.empty() && array.name() != named) continue;
    const std::string trouble = TroubleOfArray(facts.status, array.name());
    said.push_back(!trouble.empty() ? trouble
                                    : absl::StrCat("array ", array.name(), " serves, and has ",
                                                   GiB(array.available_bytes()), " available"));
  }
  if (said.empty()) said.push_back(TroubleOfArray(facts.status, named));
  return said;
}

// It is still there, and uses nothing any more.
bool HasEnded(const Json& pod) {
  const std::string phase = TextAt(pod, {"status", "phase"});
  return phase == "Succeeded" || phase == "Failed";
}

Sentences ExplainPods(const ClaimFacts& facts) {
  Sentences said;
  for (const Json& pod : facts.pods) {
    if (HasEnded(pod)) continue;
    const std::string unscheduled = UnmetCondition(pod, "PodScheduled");
    if (!unscheduled.empty())
      said.push_back(absl::StrCat("pod ", NameOf(pod), " has no node: ", unscheduled));
  }
  return said;
}

// The first that holds is the answer: whatever would come later waits for it.
Sentences ExplainPending(const ClaimFacts& facts) {
  const std::string name = TextAt(facts.claim, {"spec", "storageClassName"});
  if (name.empty())
    return {
        "it names no StorageClass, and the cluster had no default when it was made: name one in the claim"};
  if (facts.storage_class.is_null()) return {absl::StrCat("its StorageClass ", name, " does not exist")};
  const std::string provisioner = TextAt(facts.storage_class, {"provisioner"});
  if (provisioner != kDriverName)
    return {absl::StrCat("its StorageClass ", name, " is of ", provisioner, ", and not of Lunkeeper")};
  const Json& notes = FieldAt(facts.claim, {"metadata", "annotations"});
  if (TextAt(facts.storage_class, {"volumeBindingMode"}) == "WaitForFirstConsumer" &&
      TextAt(notes, {"volume.kubernetes.io/selected-node"}).empty()) {
    if (facts.pods.empty() && facts.may_list_pods)
      return {absl::StrCat("it waits for its first pod, as StorageClass ", name, " says: no pod uses it")};
    Sentences said = {
        absl::StrCat("it waits until a pod that uses it has a node, as StorageClass ", name, " says")};
    for (std::string& each : ExplainPods(facts)) said.push_back(std::move(each));
    return said;
  }
  Sentences said = ExplainArraysForNew(facts);
  said.push_back("what the provisioner was answered is in its events: kubectl describe pvc");
  return said;
}

// Several nodes may have its volume at once, so none waits for another one.
bool IsShared(const Json& claim) {
  const Json& modes = FieldAt(claim, {"spec", "accessModes"});
  return std::any_of(modes.begin(), modes.end(),
                     [](const Json& mode) { return mode == "ReadWriteMany" || mode == "ReadOnlyMany"; });
}

// Named wrongly, a holder that is well would be fenced: so nothing is said where the pod's own node has the
// volume too, or may get it beside the others.
Sentences ExplainWaits(const ClaimFacts& facts, const admin::v1::VolumeStatus& volume) {
  Sentences said;
  if (volume.nodes().empty() || IsShared(facts.claim)) return said;
  for (const Json& pod : facts.pods) {
    const std::string node = TextAt(pod, {"spec", "nodeName"});
    // Holders are node ids, and a pod names its node: an older instance of the same machine counts as it.
    const bool has_it = std::any_of(volume.nodes().begin(), volume.nodes().end(),
                                    [&](const auto& holder) { return MachineOf(NodeId(holder)) == node; });
    if (node.empty() || has_it || HasEnded(pod)) continue;
    said.push_back(absl::StrCat("pod ", NameOf(pod), " on ", node, " waits until ", volume.nodes(0),
                                " gives it up or is fenced"));
  }
  return said;
}

// Who has the volume, and whether it is who should.
Sentences ExplainHolders(const ClaimFacts& facts, const admin::v1::VolumeStatus& volume,
                         const ArrayStatus& array) {
  Sentences said;
  for (const auto& grant : array.grants()) {
    if (grant.volume() != volume.id()) continue;
    said.push_back(absl::StrCat(
        "node ", grant.node(), " has it",
        grant.sessions() == 0 && !array.unseen().empty()
            ? absl::StrCat("; whether it is connected is not known: ", array.unseen(0))
        : grant.sessions() == 0 ? ", but is not connected to it: `lunkeeper status` there says why"
                                : absl::StrCat(", connected, with ", grant.reads(), " reads and ",
                                               grant.writes(), " writes since it connected")));
  }
  for (auto& each : ExplainWaits(facts, volume)) said.push_back(each);
  return said;
}

Sentences ExplainFences(const ArrayStatus& array, const ClaimFacts& facts) {
  Sentences said;
  for (const auto& fence : array.fences()) {
    for (const Json& pod : facts.pods)
      if (!HasEnded(pod) && MachineOf(NodeId(fence.node())) == TextAt(pod, {"spec", "nodeName"}))
        said.push_back(absl::StrCat("pod ", NameOf(pod), " is on a node that is fenced at array ",
                                    array.name(), " (", fence.node(), "), and gets no volume there"));
  }
  return said;
}

// The claim's capacity follows its request once the volume and its file system have grown.
std::string ExplainGrowth(const Json& claim) {
  const std::string wanted = TextAt(claim, {"spec", "resources", "requests", "storage"});
  const std::string has = TextAt(claim, {"status", "capacity", "storage"});
  if (wanted == has || has.empty()) return "";
  // What 10G asks for has 9537Mi.
  const std::optional<double> wanted_bytes = kube::ParseQuantity(wanted), bytes = kube::ParseQuantity(has);
  if (wanted_bytes && bytes && *wanted_bytes <= *bytes) return "";
  std::string why;
  for (const Json& condition : FieldAt(claim, {"status", "conditions"}))
    absl::StrAppend(&why, "; ", TextAt(condition, {"type"}), " ", TextAt(condition, {"message"}));
  return absl::StrCat("it has ", has, " and asks for ", wanted, why);
}

Sentences ExplainBound(const ClaimFacts& facts) {
  if (facts.volume.is_null())
    return {absl::StrCat("its PersistentVolume ", TextAt(facts.claim, {"spec", "volumeName"}), " is gone")};
  const std::string driver = TextAt(facts.volume, {"spec", "csi", "driver"});
  if (driver != kDriverName)
    return {absl::StrCat("its volume is of ", driver.empty() ? "no CSI driver" : driver,
                         ", and not of Lunkeeper")};
  const std::string id = TextAt(facts.volume, {"spec", "csi", "volumeHandle"});
  const std::string array = ArrayNameIn(id);
  const std::string trouble = TroubleOfArray(facts.status, array);
  if (!trouble.empty()) return {absl::StrCat("its volume is ", id, ", and ", trouble)};
  const auto volume = std::find_if(facts.volumes.volumes().begin(), facts.volumes.volumes().end(),
                                   [&](const auto& each) { return each.id() == id; });
  for (const auto& away : facts.volumes.away())
    if (away.array() == array)
      return {absl::StrCat("its volume is ", id, ", and array ", array,
                           " did not say which volumes it has: ", away.why())};
  // The array serves and has listed its volumes, so this is the whole truth.
  if (volume == facts.volumes.volumes().end())
    return {absl::StrCat("array ", array, " does not know its volume ", id,
                         ": it was deleted, or is newer than a copy that the array was restored from")};
  Sentences said = ExplainHolders(facts, *volume, *FindArrayStatus(facts.status, array));
  if (said.empty()) said.push_back("no node has it");
  for (auto& each : ExplainFences(*FindArrayStatus(facts.status, array), facts)) said.push_back(each);
  for (auto& each : ExplainPods(facts)) said.push_back(each);
  if (facts.pods.empty() && facts.may_list_pods)
    said.push_back("no pod uses it");
  else if (!facts.pods.empty() && std::all_of(facts.pods.begin(), facts.pods.end(), HasEnded))
    said.push_back("every pod that used it has ended");
  const std::string growth = ExplainGrowth(facts.claim);
  if (!growth.empty()) said.push_back(growth);
  said.insert(said.begin(), absl::StrCat("its volume is ", id, ", of ", GiB(volume->size_bytes())));
  return said;
}

// Of `explain`: its arguments and surroundings.
struct ExplainCommand {
  AdminTarget target;
  std::string what, space = "default";
  MakeClient cluster;

  absl::Time Deadline() const { return absl::Now() + absl::Seconds(target.timeout_seconds); }
};

bool UsesClaim(const Json& pod, const std::string& claim) {
  const Json& volumes = FieldAt(pod, {"spec", "volumes"});
  return std::any_of(volumes.begin(), volumes.end(), [&](const Json& volume) {
    // A generic ephemeral volume's claim is called after its pod.
    return TextAt(volume, {"persistentVolumeClaim", "claimName"}) == claim ||
           (volume.contains("ephemeral") &&
            absl::StrCat(NameOf(pod), "-", TextAt(volume, {"name"})) == claim);
  });
}

// Null: there is none of that name.
absl::StatusOr<Json> FindNamed(kube::KubeClient& client, kube::Selection selection, const std::string& name,
                               absl::Time deadline) {
  selection.fields = "metadata.name=" + name;
  ASSIGN_OR_RETURN(const auto found, kube::ListAll(client, selection, {deadline}));
  for (const Json& object : found)
    if (NameOf(object) == name) return object;
  return Json();
}

absl::StatusOr<ClaimFacts> ReadFacts(const ExplainCommand& command, const std::string& name) {
  ASSIGN_OR_RETURN(const auto client, command.cluster());
  const absl::Time deadline = command.Deadline();
  ClaimFacts facts;
  ASSIGN_OR_RETURN(facts.claim,
                   FindNamed(*client, {{"", "v1", "persistentvolumeclaims"}, command.space}, name, deadline));
  if (facts.claim.is_null())
    return absl::NotFoundError(absl::StrCat("there is no claim ", name, " in namespace ", command.space,
                                            "; name another one with --namespace"));
  ASSIGN_OR_RETURN(facts.storage_class,
                   FindNamed(*client, {{"storage.k8s.io", "v1", "storageclasses"}},
                             TextAt(facts.claim, {"spec", "storageClassName"}), deadline));
  ASSIGN_OR_RETURN(facts.volume, FindNamed(*client, {{"", "v1", "persistentvolumes"}},
                                           TextAt(facts.claim, {"spec", "volumeName"}), deadline));
  auto pods = kube::ListAll(*client, {kube::kPods, command.space}, {deadline});
  // The chart lets a controller list pods for failover alone.
  facts.may_list_pods = !absl::IsPermissionDenied(pods.status());
  if (facts.may_list_pods) {
    RETURN_IF_ERROR(pods.status());
    for (Json& pod : *pods)
      if (UsesClaim(pod, name)) facts.pods.push_back(std::move(pod));
  }
  ASSIGN_OR_RETURN(facts.status, (AskServer<admin::v1::StatusRequest, admin::v1::StatusResponse>(
                                     command.target, &Admin::Stub::Status, {})));
  ASSIGN_OR_RETURN(facts.volumes, (AskServer<admin::v1::ListVolumesRequest, admin::v1::ListVolumesResponse>(
                                      command.target, &Admin::Stub::ListVolumes, {})));
  return facts;
}

absl::Status Explain(const ExplainCommand& command) {
  const std::string name(absl::StripPrefix(command.what, "pvc/"));
  if (name == command.what || name.empty())
    return absl::InvalidArgumentError(absl::StrCat(command.what, ": want pvc/NAME"));
  ASSIGN_OR_RETURN(const ClaimFacts facts, ReadFacts(command, name));
  std::cout << "pvc " << command.space << '/' << name << " is " << TextAt(facts.claim, {"status", "phase"})
            << '\n';
  for (const std::string& sentence : ExplainClaim(facts)) std::cout << "- " << sentence << '\n';
  return absl::OkStatus();
}

}  // namespace

Sentences ExplainClaim(const ClaimFacts& facts) {
  Sentences said =
      TextAt(facts.claim, {"spec", "volumeName"}).empty() ? ExplainPending(facts) : ExplainBound(facts);
  if (!TextAt(facts.claim, {"metadata", "deletionTimestamp"}).empty())
    said.insert(said.begin(), facts.pods.empty()
                                  ? "it is being deleted"
                                  : absl::StrCat("it is being deleted, and stays as long as pod ",
                                                 NameOf(facts.pods.front()), " uses it"));
  if (!facts.may_list_pods)
    said.push_back(
        "its pods are not known: this controller may not list them, as without failover (failover.enabled in "
        "the chart); look at them with kubectl describe pod");
  return said;
}

void AddExplainCommand(CLI::App* app, int* exit_code, const MakeClient& cluster) {
  const auto command = std::make_shared<ExplainCommand>();
  command->cluster = cluster;
  CLI::App* added =
      AddAdminCommand(app, "explain", "Say why a claim is pending, stuck or slow", &command->target);
  added->add_option("what", command->what, "pvc/NAME")->required();
  added->add_option("-n,--namespace", command->space, "The claim's namespace")->capture_default_str();
  added->callback([=] { *exit_code = ExitCode(Explain(*command)); });
}

}  // namespace lunkeeper
