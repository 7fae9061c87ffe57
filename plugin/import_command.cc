// Reads the arrays' volumes first and the cluster's objects after them: a volume that the provisioner makes
// meanwhile then has its PersistentVolume, or its claim, in what was read. Everything that is wrong with the
// command line, or unclear, is said before anything is printed, all of it at once, so that half a list of
// manifests never reaches kubectl unasked. Only an array that is away is said afterwards, since what the
// others have is right all the same.
//
// Manifests go to standard output and warnings to standard error: the former is meant for a file or a pipe.
#include "plugin/import_command.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "devices/array/volume_uses.h"
#include "fencing/kube/list_all.h"
#include "plugin/admin_call.h"
#include "plugin/cluster_view.h"
#include "plugin/import_plan.h"
#include "plugin/import_snapshots.h"
#include "plugin/table.h"
#include "plugin/yaml.h"

namespace lunkeeper {
namespace {

using admin::v1::Admin;
using kube::Json;

// Of `import`: its arguments and surroundings.
struct ImportCommand {
  AdminTarget target;
  std::vector<std::string> ids, claims, snapshots;
  std::string storage_class, snapshot_class, output = "table";
  bool skip_unclear = false;
  MakeClient cluster;
};

// All that was read, and all that is wished.
struct Import {
  ImportFacts facts;
  ImportWishes wishes;
  SnapshotFacts snapshots;
  SnapshotWishes snapshot_wishes;
  std::set<std::string> asked;
  std::string no_snapshots;  // why the cluster's snapshots are not known; empty: they are
};

// A cluster without their kinds, or one where Lunkeeper has no right to them, has no use for snapshots.
absl::Status ReadSnapshots(kube::KubeClient& client, const kube::Limits& limits, Import& import) {
  const auto list = [&](const char* kind) {
    return kube::ListAll(client, {{"snapshot.storage.k8s.io", "v1", kind}}, limits);
  };
  auto contents = list("volumesnapshotcontents");
  if (absl::IsNotFound(contents.status()) || absl::IsPermissionDenied(contents.status())) {
    import.no_snapshots = std::string(contents.status().message());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(import.snapshots.contents, std::move(contents));
  ASSIGN_OR_RETURN(import.snapshots.volume_snapshots, list("volumesnapshots"));
  ASSIGN_OR_RETURN(import.snapshots.classes, list("volumesnapshotclasses"));
  return absl::OkStatus();
}

absl::StatusOr<Import> ReadImport(const ImportCommand& command) {
  // Before anything is read: without the cluster every volume would look lost.
  ASSIGN_OR_RETURN(const auto client, command.cluster());
  const kube::Limits limits = {absl::Now() + absl::Seconds(command.target.timeout_seconds)};
  Import import;
  ImportFacts& facts = import.facts;
  ASSIGN_OR_RETURN(facts.volumes, (AskServer<admin::v1::ListVolumesRequest, admin::v1::ListVolumesResponse>(
                                      command.target, &Admin::Stub::ListVolumes, {})));
  ASSIGN_OR_RETURN(import.snapshots.snapshots,
                   (AskServer<admin::v1::ListSnapshotsRequest, admin::v1::ListSnapshotsResponse>(
                       command.target, &Admin::Stub::ListSnapshots, {})));
  ASSIGN_OR_RETURN(facts.persistent_volumes,
                   kube::ListAll(*client, {{"", "v1", "persistentvolumes"}}, limits));
  ASSIGN_OR_RETURN(facts.claims, kube::ListAll(*client, {{"", "v1", "persistentvolumeclaims"}}, limits));
  ASSIGN_OR_RETURN(facts.storage_classes,
                   kube::ListAll(*client, {{"storage.k8s.io", "v1", "storageclasses"}}, limits));
  ASSIGN_OR_RETURN(facts.nodes, ReadNodes(*client, absl::Now() + limits.TimeLeft()));
  RETURN_IF_ERROR(ReadSnapshots(*client, limits, import));
  return import;
}

// --claim or --snapshot: who gets what.
struct WishOption {
  const char *option, *kind, *form;
  std::set<std::string> known;  // ids
  bool any_away;                // then there may be others

  absl::Status CheckKnown(const std::string& id) const {
    if (known.contains(id) || any_away) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("there is no ", kind, " ", id));
  }
  // The names by the ids that they are wished for.
  absl::StatusOr<std::map<std::string, std::string>> ParseAll(const std::vector<std::string>& texts,
                                                              const std::set<std::string>& asked) const {
    std::map<std::string, std::string> wishes;
    for (const std::string& text : texts) {
      const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
      const std::string wish = absl::StrCat(option, " ", text, ": ");
      RETURN_IF_ERROR(CheckKnown(parts.first));
      if (!asked.empty() && !asked.contains(parts.first))
        return absl::InvalidArgumentError(
            absl::StrCat(wish, "the ", kind, " is not among those that are named"));
      if (parts.second.empty()) return absl::InvalidArgumentError(absl::StrCat(wish, "want ", form));
      if (!wishes.insert(parts).second)
        return absl::InvalidArgumentError(absl::StrCat(wish, "the ", kind, " has one already"));
    }
    return wishes;
  }
};

absl::Status ParseWishes(const ImportCommand& command, Import& import) {
  const bool any_away = !import.facts.volumes.away().empty() || !import.snapshots.snapshots.away().empty();
  WishOption claim = {"--claim", "volume", "VOLUME=NAMESPACE/NAME", {}, any_away};
  WishOption snapshot = {"--snapshot", "snapshot", "SNAPSHOT=NAMESPACE/NAME", {}, any_away};
  for (const auto& each : import.facts.volumes.volumes()) claim.known.insert(each.id());
  for (const auto& each : import.snapshots.snapshots.snapshots()) snapshot.known.insert(each.id());
  import.asked = {command.ids.begin(), command.ids.end()};
  for (const std::string& id : command.ids)
    if (!snapshot.known.contains(id)) RETURN_IF_ERROR(claim.CheckKnown(id));
  import.wishes.storage_class = command.storage_class;
  ASSIGN_OR_RETURN(import.wishes.claims, claim.ParseAll(command.claims, import.asked));
  import.snapshot_wishes.snapshot_class = command.snapshot_class;
  ASSIGN_OR_RETURN(import.snapshot_wishes.names, snapshot.ParseAll(command.snapshots, import.asked));
  import.snapshots.spaces = FindSpaces(import.facts, import.wishes);
  import.snapshots.modes = FindVolumeModes(import.facts);
  return absl::OkStatus();
}

void PrintLost(const std::vector<LostVolume>& lost, const ImportWishes& wishes) {
  Table table({{"VOLUME"}, {"PERSISTENTVOLUME"}, {"CLAIM"}, {"SIZE"}, {"MADE FOR"}, {"NODES"}, {"CREATED"}});
  for (const LostVolume& each : lost) {
    table.AddRow({each.status.id(), each.name, OrDash(absl::StrJoin(ClaimsFor(each, wishes), " ")),
                  SizeCell(each.status.size_bytes()), VolumeUses(each.status.uses()).ToText(),
                  OrDash(absl::StrJoin(each.status.nodes(), " ")),
                  TimeCell(each.status.created_unix_seconds())});
  }
  table.Print(std::cout, Output::kTable);
}

void PrintLostSnapshots(const std::vector<LostSnapshot>& lost) {
  Table table({{"SNAPSHOT"},
               {"VOLUMESNAPSHOTCONTENT"},
               {"VOLUMESNAPSHOT"},
               {"SIZE"},
               {"VOLUME"},
               {"GROUP"},
               {"CREATED"}});
  for (const LostSnapshot& each : lost)
    table.AddRow({each.status.id(), each.content, OrDash(absl::StrJoin(each.possible, " ")),
                  SizeCell(each.status.size_bytes()), each.status.volume(), OrDash(each.status.group()),
                  TimeCell(each.status.created_unix_seconds())});
  table.Print(std::cout, Output::kTable);
}

// Why there is nothing to import. Another name of the cluster looks like that, too.
std::string DescribeNothing(const Import& import) {
  const bool has_snapshots = import.snapshots.snapshots.snapshots_size() > 0;
  if (import.facts.volumes.volumes().empty() && !has_snapshots && import.facts.volumes.away().empty())
    return "the arrays have nothing of this cluster; `lunkeeper reassign`, at an array, gives this one what "
           "a cluster of another name had there";
  const bool are_known = has_snapshots && import.no_snapshots.empty();
  return absl::StrCat("every volume has its PersistentVolume",
                      are_known ? ", and every snapshot its VolumeSnapshotContent" : "");
}

void PrintTables(const Import& import, const std::vector<LostVolume>& lost,
                 const std::vector<LostSnapshot>& snapshots) {
  if (lost.empty() && snapshots.empty()) std::cout << DescribeNothing(import) << '\n';
  if (!lost.empty()) PrintLost(lost, import.wishes);
  if (!lost.empty() && !snapshots.empty()) std::cout << '\n';
  if (!snapshots.empty()) PrintLostSnapshots(snapshots);
}

void PrintManifests(const ImportPlan& plan, const Import& import, const std::string& output) {
  if (output == "json") {
    const Json list = {{"apiVersion", "v1"}, {"kind", "List"}, {"items", plan.manifests}};
    std::cout << list.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
    return;
  }
  if (plan.manifests.empty() && plan.unclear.empty()) std::cout << "# " << DescribeNothing(import) << '\n';
  for (const Json& manifest : plan.manifests) std::cout << "---\n" << ToYaml(manifest);
}

void Warn(const std::vector<std::string>& sentences) {
  for (const std::string& sentence : sentences) std::cerr << "lunkeeper: " << sentence << '\n';
}

void WarnOfAll(const Import& import, const std::vector<LostVolume>& lost,
               const std::vector<LostSnapshot>& snapshots) {
  Warn(WarnOfHolders(lost, import.facts));
  Warn(WarnOfDoubt(lost, import.wishes));
  std::set<std::string> asked = import.asked;
  for (const auto& wish : import.wishes.claims) asked.insert(wish.first);
  for (const auto& wish : import.snapshot_wishes.names) asked.insert(wish.first);
  Warn(WarnOfKept(asked, import.facts));
  Warn(WarnOfSnapshots(snapshots, asked, import.snapshots));
  if (const int left = import.snapshots.snapshots.snapshots_size(); left > 0 && !import.no_snapshots.empty())
    Warn({absl::StrCat("the arrays have ", left,
                       " snapshots, and none is imported, since this cluster's are not known: ",
                       import.no_snapshots, ". Install the snapshot CRDs, and import again")});
}

absl::Status TooUnclear(const ImportPlan& plan) {
  return absl::FailedPreconditionError(
      absl::StrCat("nothing is printed, as it is not clear what to do with those above. Settle that, or "
                   "leave them out with --skip-unclear: the others need ",
                   plan.manifests.size(), plan.manifests.size() == 1 ? " manifest" : " manifests"));
}

absl::Status RunImport(const ImportCommand& command) {
  ASSIGN_OR_RETURN(Import import, ReadImport(command));
  RETURN_IF_ERROR(ParseWishes(command, import));
  const std::vector<LostVolume> lost = FindLostVolumes(import.facts, import.wishes, import.asked);
  std::vector<LostSnapshot> snapshots;
  if (import.no_snapshots.empty())
    snapshots = FindLostSnapshots(import.snapshots, import.snapshot_wishes, import.asked);
  if (command.output == "table") {
    PrintTables(import, lost, snapshots);
  } else {
    ASSIGN_OR_RETURN(ImportPlan plan, PlanImport(lost, import.facts, import.wishes));
    RETURN_IF_ERROR(PlanSnapshots(snapshots, import.snapshots, import.snapshot_wishes, plan));
    Warn(plan.unclear);
    if (!plan.unclear.empty() && !command.skip_unclear) return TooUnclear(plan);
    PrintManifests(plan, import, command.output);
  }
  WarnOfAll(import, lost, snapshots);
  RETURN_IF_ERROR(CheckNoneAway(import.facts.volumes));
  return CheckNoneAway(import.snapshots.snapshots);
}

}  // namespace

void AddImportCommand(CLI::App* app, int* exit_code, const MakeClient& cluster) {
  const auto command = std::make_shared<ImportCommand>();
  command->cluster = cluster;
  CLI::App* added = AddAdminCommand(
      app, "import",
      "List volumes and snapshots that have no object here, or print the manifests that bring them back",
      &command->target);
  added->add_option("ids", command->ids, "Only these volumes and snapshots, by their ids");
  added->add_option("--claim", command->claims,
                    "VOLUME=NAMESPACE/NAME: the claim that gets it; it is printed too if it is not there");
  added->add_option("--storage-class", command->storage_class,
                    "Of the volumes whose claim is not there; needed where there are several");
  added->add_option("--snapshot", command->snapshots,
                    "SNAPSHOT=NAMESPACE/NAME: the VolumeSnapshot that gets it");
  added->add_option("--snapshot-class", command->snapshot_class,
                    "Of the snapshots; if not given, the only one there is, or none");
  added->add_flag("--skip-unclear", command->skip_unclear,
                  "Print the manifests of the others where it is not clear what to do with some");
  added->add_option("-o,--output", command->output, "table, or manifests for kubectl apply: yaml or json")
      ->check(CLI::IsMember({"table", "yaml", "json"}))
      ->capture_default_str();
  added->callback([=] { *exit_code = ExitCode(RunImport(*command)); });
}

}  // namespace lunkeeper
