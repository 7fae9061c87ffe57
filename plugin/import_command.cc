// Reads the arrays' volumes first and the cluster's objects after them: a volume that the provisioner makes
// meanwhile then has its PersistentVolume, or its claim, in what was read. Everything that is wrong with the
// command line, or unclear, is said before anything is printed, all of it at once, so that half a list of
// manifests never reaches kubectl unasked. Only an array that is away is said afterwards, since what the
// others have is right all the same.
//
// Manifests go to standard output and warnings to standard error: the former is meant for a file or a pipe.
#include "plugin/import_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <set>
#include <utility>

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
#include "plugin/table.h"
#include "plugin/yaml.h"

namespace lunkeeper {
namespace {

using admin::v1::Admin;
using kube::Json;

// Of `import`: its arguments and surroundings.
struct ImportCommand {
  AdminTarget target;
  std::vector<std::string> volumes, claims;
  std::string storage_class, output = "table";
  bool skip_unclear = false;
  MakeClient cluster;
};

absl::StatusOr<ImportFacts> ReadImportFacts(const ImportCommand& command) {
  // Before anything is read: without the cluster every volume would look lost.
  ASSIGN_OR_RETURN(const auto client, command.cluster());
  const kube::Limits limits = {absl::Now() + absl::Seconds(command.target.timeout_seconds)};
  ImportFacts facts;
  ASSIGN_OR_RETURN(facts.volumes, (AskServer<admin::v1::ListVolumesRequest, admin::v1::ListVolumesResponse>(
                                      command.target, &Admin::Stub::ListVolumes, {})));
  ASSIGN_OR_RETURN(facts.persistent_volumes,
                   kube::ListAll(*client, {{"", "v1", "persistentvolumes"}}, limits));
  ASSIGN_OR_RETURN(facts.claims, kube::ListAll(*client, {{"", "v1", "persistentvolumeclaims"}}, limits));
  ASSIGN_OR_RETURN(facts.storage_classes,
                   kube::ListAll(*client, {{"storage.k8s.io", "v1", "storageclasses"}}, limits));
  ASSIGN_OR_RETURN(facts.nodes, ReadNodes(*client, absl::Now() + limits.TimeLeft()));
  return facts;
}

absl::StatusOr<ImportWishes> ParseWishes(const ImportCommand& command, const ImportFacts& facts) {
  std::set<std::string> known;
  for (const auto& volume : facts.volumes.volumes()) known.insert(volume.id());
  const auto check = [&](const std::string& id) {
    if (known.contains(id) || !facts.volumes.away().empty()) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("there is no volume ", id));
  };
  for (const std::string& id : command.volumes) RETURN_IF_ERROR(check(id));
  ImportWishes wishes = {.storage_class = command.storage_class, .claims = {}};
  for (const std::string& wish : command.claims) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(wish, absl::MaxSplits('=', 1));
    RETURN_IF_ERROR(check(parts.first));
    if (!command.volumes.empty() && std::ranges::find(command.volumes, parts.first) == command.volumes.end())
      return absl::InvalidArgumentError(
          absl::StrCat("--claim ", wish, ": the volume is not among those that are named"));
    if (parts.second.empty())
      return absl::InvalidArgumentError(absl::StrCat("--claim ", wish, ": want VOLUME=NAMESPACE/NAME"));
    if (!wishes.claims.insert(parts).second)
      return absl::InvalidArgumentError(absl::StrCat("--claim ", wish, ": the volume has one already"));
  }
  return wishes;
}

void PrintLost(const std::vector<LostVolume>& lost, const ImportWishes& wishes) {
  if (lost.empty()) {
    std::cout << "every volume has its PersistentVolume\n";
    return;
  }
  Table table({{"VOLUME"}, {"PERSISTENTVOLUME"}, {"CLAIM"}, {"SIZE"}, {"MADE FOR"}, {"NODES"}, {"CREATED"}});
  for (const LostVolume& each : lost) {
    table.AddRow({each.status.id(), each.name, OrDash(absl::StrJoin(ClaimsFor(each, wishes), " ")),
                  SizeCell(each.status.size_bytes()), VolumeUses(each.status.uses()).ToText(),
                  OrDash(absl::StrJoin(each.status.nodes(), " ")),
                  TimeCell(each.status.created_unix_seconds())});
  }
  table.Print(std::cout, Output::kTable);
}

void PrintManifests(const ImportPlan& plan, const std::string& output) {
  if (output == "json") {
    const Json list = {{"apiVersion", "v1"}, {"kind", "List"}, {"items", plan.manifests}};
    std::cout << list.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
    return;
  }
  if (plan.manifests.empty() && plan.unclear.empty())
    std::cout << "# every volume has its PersistentVolume\n";
  for (const Json& manifest : plan.manifests) std::cout << "---\n" << ToYaml(manifest);
}

void Warn(const std::vector<std::string>& sentences) {
  for (const std::string& sentence : sentences) std::cerr << "lunkeeper: " << sentence << '\n';
}

absl::Status TooUnclear(const ImportPlan& plan) {
  return absl::FailedPreconditionError(absl::StrCat(
      "nothing is printed, as it is not clear what to do with the volumes above. Settle that, or "
      "leave them out with --skip-unclear: the others need ",
      plan.manifests.size(), plan.manifests.size() == 1 ? " manifest" : " manifests"));
}

absl::Status Import(const ImportCommand& command) {
  ASSIGN_OR_RETURN(const ImportFacts facts, ReadImportFacts(command));
  ASSIGN_OR_RETURN(const ImportWishes wishes, ParseWishes(command, facts));
  std::set<std::string> asked(command.volumes.begin(), command.volumes.end());
  const std::vector<LostVolume> lost = FindLostVolumes(facts, wishes, asked);
  if (command.output == "table") {
    PrintLost(lost, wishes);
  } else {
    ASSIGN_OR_RETURN(const ImportPlan plan, PlanImport(lost, facts, wishes));
    Warn(plan.unclear);
    if (!plan.unclear.empty() && !command.skip_unclear) return TooUnclear(plan);
    PrintManifests(plan, command.output);
  }
  std::vector<std::string> warnings = WarnOfHolders(lost, facts);
  for (std::string& doubt : WarnOfDoubt(lost, wishes)) warnings.push_back(std::move(doubt));
  for (const auto& wish : wishes.claims) asked.insert(wish.first);
  for (std::string& kept : WarnOfKept(asked, facts)) warnings.push_back(std::move(kept));
  Warn(warnings);
  return CheckNoneAway(facts.volumes);
}

}  // namespace

void AddImportCommand(CLI::App* app, int* exit_code, const MakeClient& cluster) {
  const auto command = std::make_shared<ImportCommand>();
  command->cluster = cluster;
  CLI::App* added = AddAdminCommand(
      app, "import", "List volumes without a PersistentVolume, or print the manifests that bring them back",
      &command->target);
  added->add_option("volumes", command->volumes, "Only these, by their ids");
  added->add_option("--claim", command->claims,
                    "VOLUME=NAMESPACE/NAME: the claim that gets it; it is printed too if it is not there");
  added->add_option("--storage-class", command->storage_class,
                    "Of the volumes whose claim is not there; needed where there are several");
  added->add_flag("--skip-unclear", command->skip_unclear,
                  "Print the manifests of the other volumes where it is not clear what to do with some");
  added->add_option("-o,--output", command->output, "table, or manifests for kubectl apply: yaml or json")
      ->check(CLI::IsMember({"table", "yaml", "json"}))
      ->capture_default_str();
  added->callback([=] { *exit_code = ExitCode(Import(*command)); });
}

}  // namespace lunkeeper
