// Each command is one call over the server's unix socket, made inside CLI11's callback, that is, while the
// command line is still being parsed. Answers go to standard output, errors to standard error with the status
// code's name, so that a script can tell an error from an answer by the exit code alone.
//
// `fence` and `unfence` have two meanings. Inside a cluster they act on a whole node, through a NodeFence
// object that failover carries out: it also moves the pods, and it is what the controllers expect. At one
// array (--array, --volume, --generation, or no cluster at all) they call the array directly, for repairs
// and for orchestrators without failover.
#include "plugin/admin_client.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/host_name.h"
#include "base/status_macros.h"
#include "devices/node_id.h"
#include "fencing/failover/allow_volume.h"
#include "fencing/failover/manual_fence.h"
#include "plugin/admin_call.h"
#include "plugin/doctor.h"
#include "plugin/explain_command.h"
#include "plugin/import_command.h"
#include "plugin/list_commands.h"
#include "plugin/reassign_command.h"
#include "plugin/removal_command.h"
#include "plugin/support_bundle.h"
#include "plugin/table.h"
#include "plugin/top_command.h"
#include "plugin/uninstall_check.h"

namespace lunkeeper {
namespace {

using admin::v1::Admin;

// For a list of all PersistentVolumes and a change of each that is named.
constexpr absl::Duration kAllowTimeout = absl::Seconds(30);

// Prints a table under a heading; one without rows is one line, "none".
void PrintTable(const std::string& heading, const Table& table) {
  std::cout << heading << (table.empty() ? ": none\n" : ":\n");
  if (!table.empty()) table.Print(std::cout, Output::kWide, "  ");
}

void PrintArray(const admin::v1::ArrayStatus& array) {
  if (!array.not_serving().empty()) {
    std::cout << "array " << array.name() << " does not serve: " << array.not_serving() << '\n';
    return;
  }
  std::cout << "array " << array.name() << ": " << GiB(array.available_bytes()) << " of "
            << GiB(array.total_bytes()) << " available\n";
  for (const std::string& part : array.unseen())
    std::cout << "a part of it does not answer, and sessions there are not known: " << part << '\n';
  Table grants({{"VOLUME"},
                {"NODE"},
                {"ACCESS"},
                {"OWNER"},
                {"GENERATION"},
                {"SESSIONS"},
                {"READS"},
                {"WRITES"},
                {"CHAP"}});
  for (const auto& grant : array.grants()) {
    grants.AddRow({grant.volume(), grant.node(), grant.access(), grant.owner(),
                   absl::StrCat(grant.generation()), absl::StrCat(grant.sessions()),
                   absl::StrCat(grant.reads()), absl::StrCat(grant.writes()),
                   grant.target_proves_itself() ? "mutual" : "one-way"});
  }
  PrintTable("grants", grants);
  Table fences({{"NODE"}, {"GENERATION"}, {"TERM"}, {"VOLUMES"}, {"SINCE"}, {"BY"}, {"WHY"}});
  for (const auto& fence : array.fences()) {
    fences.AddRow({fence.node(), absl::StrCat(fence.generation()), absl::StrCat(fence.term()),
                   fence.volumes().empty() ? "-" : absl::StrJoin(fence.volumes(), " "),
                   TimeCell(fence.fenced_unix_seconds()), OrDash(fence.fenced_by()), OrDash(fence.reason())});
  }
  PrintTable("fenced nodes", fences);
}

void PrintDevices(const admin::v1::StatusResponse& response) {
  Table devices(
      {{"VOLUME"}, {"DEVICE"}, {"SIZE"}, {"HEALTH"}, {"PORTAL"}, {"PORTAL SINCE"}, {"MOVES"}, {"WHY"}});
  for (const auto& device : response.devices()) {
    const bool known = !device.used_portal().empty();
    devices.AddRow({device.volume(), device.path(), GiB(device.size_bytes()), device.health(),
                    OrDash(device.used_portal()), TimeCell(device.path_since_unix_seconds()),
                    known ? absl::StrCat(device.path_moves()) : "-", device.reason()});
  }
  PrintTable("devices", devices);
}

void PrintStatus(const admin::v1::StatusResponse& response) {
  std::cout << "lunkeeper " << response.version() << ", mode " << response.mode() << ": "
            << (response.not_ready().empty() ? "ready" : "not ready: " + response.not_ready()) << '\n';
  for (const auto& gateway : response.gateways()) std::cout << gateway.description() << '\n';
  for (const auto& array : response.arrays()) PrintArray(array);
  if (!response.failover().empty()) std::cout << "\nfailover\n";
  for (const std::string& line : response.failover()) std::cout << "  " << line << '\n';
  if (response.node_id().empty()) return;
  std::cout << "node " << response.node_id() << '\n';
  PrintDevices(response);
}

void AddArrayOption(CLI::App* command, std::string* array) {
  command->add_option("--array", *array, "Act at this array only; each array has fences of its own");
}

void AddStatus(CLI::App* app, int* exit_code) {
  const auto target = std::make_shared<AdminTarget>();
  AddAdminCommand(app, "status", "Print what a running server knows: grants, fences, devices", target.get())
      ->callback([=] {
        *exit_code = CallServer<admin::v1::StatusRequest, admin::v1::StatusResponse>(
            *target, &Admin::Stub::Status, {}, PrintStatus);
      });
}

void AddNode(CLI::App* command, std::string* node) {
  command
      ->add_option(
          "node", *node,
          "The Node's name; or an id as `status` shows it, which at one array is that instance alone")
      ->required();
}

// The arguments of `lunkeeper fence` and `lunkeeper unfence`. Shared with the callbacks, which run after the
// function that declares the options has returned.
struct FenceCommand {
  AdminTarget target;
  std::string node, reason, array;
  std::vector<std::string> volumes;
  uint64_t generation = 0;  // 0: not given; generations begin at 1
  bool graceful = false;

  fencing::ManualFenceIo MakeFenceIo(kube::KubeClient& client) const {
    // Pods may take two minutes to leave.
    const absl::Duration leaving = graceful ? absl::Minutes(2) : absl::ZeroDuration();
    return {client, absl::Now() + absl::Seconds(target.timeout_seconds) + leaving,
            [](const std::string& line) { std::cout << line << std::endl; }};
  }
};

int FenceAtArray(const FenceCommand& arguments) {
  admin::v1::FenceRequest request;
  request.set_node(arguments.node);
  request.set_array(arguments.array);
  request.set_reason(arguments.reason);
  request.mutable_volumes()->Assign(arguments.volumes.begin(), arguments.volumes.end());
  return CallServer<admin::v1::FenceRequest, admin::v1::FenceResponse>(
      arguments.target, &Admin::Stub::Fence, request, [&](const admin::v1::FenceResponse& response) {
        const auto& fence = response.fence();
        const NodeId id(fence.node());
        // Printed as `unfence` takes it: a machine by its plain name, one instance by its whole id.
        const std::string named = IsMachineId(id) ? MachineOf(id) : fence.node();
        if (response.unknown()) std::cout << "nothing of that name is known here; closed all the same\n";
        std::cout << "node " << named
                  << (IsMachineId(id) ? " is fenced, whatever instance it becomes"
                                      : " is fenced, that instance alone")
                  << ": no write of it reaches "
                  << (arguments.volumes.empty() ? "any volume of this array"
                                                : absl::StrJoin(fence.volumes(), ", "))
                  << (arguments.volumes.empty() && !fence.volumes().empty()
                          ? ". It had " + absl::StrJoin(fence.volumes(), ", ")
                          : "")
                  << "\nto let it take volumes again: lunkeeper unfence " << named << " --generation "
                  << fence.generation() << (arguments.array.empty() ? "" : " --array " + arguments.array)
                  << '\n';
      });
}

int UnfenceAtArray(const FenceCommand& arguments) {
  // Without it, a command that was typed for an old fence would lift a new one.
  if (arguments.generation == 0)
    return ExitCode(absl::InvalidArgumentError(
        "at an array, --generation is required: the fence's, as `lunkeeper status` shows it"));
  admin::v1::UnfenceRequest request;
  request.set_node(arguments.node);
  request.set_array(arguments.array);
  request.set_generation(arguments.generation);
  return CallServer<admin::v1::UnfenceRequest, admin::v1::UnfenceResponse>(
      arguments.target, &Admin::Stub::Unfence, request, [&](const admin::v1::UnfenceResponse&) {
        std::cout << "node " << arguments.node << " is not fenced\n";
      });
}

// The cluster's API server. Null: the command is for one array, as its arguments say, or this is no pod of a
// cluster.
std::unique_ptr<kube::KubeClient> ConnectToCluster(const FenceCommand& arguments, const MakeClient& cluster) {
  if (!arguments.array.empty() || !arguments.volumes.empty() || arguments.generation != 0) return nullptr;
  auto client = cluster();
  return client.ok() ? *std::move(client) : nullptr;
}

absl::Status RequestManualFence(const FenceCommand& arguments, kube::KubeClient& client) {
  return fencing::RequestManualFence(
      arguments.MakeFenceIo(client),
      {arguments.node, arguments.reason, absl::StrCat("operator@", HostName()), arguments.graceful});
}

void AddFence(CLI::App* app, int* exit_code, const MakeClient& cluster) {
  const auto arguments = std::make_shared<FenceCommand>();
  CLI::App* command = AddAdminCommand(app, "fence", "End a node's grants for good, and refuse it new ones",
                                      &arguments->target);
  AddNode(command, &arguments->node);
  command->add_option("--reason", arguments->reason, "Why, as text for the NodeFence or the array's status");
  command->add_flag(
      "--graceful", arguments->graceful,
      "In a cluster: ask the pods to leave first; the fence comes when they have, or two minutes "
      "later");
  command->add_option("--volume", arguments->volumes, "At one array: only these volumes");
  AddArrayOption(command, &arguments->array);
  command->callback([=] {
    const auto client = ConnectToCluster(*arguments, cluster);
    // Refused and not ignored: the operator counts on pods being asked.
    if (client == nullptr && arguments->graceful) {
      *exit_code = ExitCode(absl::InvalidArgumentError(
          "--graceful is for a whole node of a cluster with failover: an array has no pods to ask"));
      return;
    }
    *exit_code = client ? ExitCode(RequestManualFence(*arguments, *client)) : FenceAtArray(*arguments);
  });
}

void AddUnfence(CLI::App* app, int* exit_code, const MakeClient& cluster) {
  const auto arguments = std::make_shared<FenceCommand>();
  CLI::App* command = AddAdminCommand(app, "unfence", "Let a node take volumes again", &arguments->target);
  AddNode(command, &arguments->node);
  command->add_option("--generation", arguments->generation,
                      "At one array, required: the fence's generation, as `status` shows it");
  AddArrayOption(command, &arguments->array);
  command->callback([=] {
    const auto client = ConnectToCluster(*arguments, cluster);
    *exit_code =
        client ? ExitCode(fencing::RequestManualUnfence(arguments->MakeFenceIo(*client), arguments->node))
               : UnfenceAtArray(*arguments);
  });
}

void AddAllow(CLI::App* app, int* exit_code, const MakeClient& cluster) {
  const auto volumes = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app->add_subcommand(
      "allow", "Let volumes be moved again that are held back, as nodes died soon after they mounted them");
  CLI::Option_group* which = command->add_option_group("which");
  which->add_option("volume", *volumes, "Their ids, or their PersistentVolumes' names");
  which->add_flag("--all")->description("All that are held back");
  which->require_option(1);
  command->callback([=] {
    const auto client = cluster();
    *exit_code = ExitCode(
        client.ok() ? fencing::AllowVolumes(**client, *volumes, absl::Now() + kAllowTimeout,
                                            [](const std::string& line) { std::cout << line << std::endl; })
                    : client.status());
  });
}

void AddAcceptRestore(CLI::App* app, int* exit_code) {
  const auto target = std::make_shared<AdminTarget>();
  AddAdminCommand(app, "accept-restore",
                  "Serve an array that was restored from an older copy; this ends every grant", target.get())
      ->callback([=] {
        *exit_code = CallServer<admin::v1::AcceptRestoreRequest, admin::v1::AcceptRestoreResponse>(
            *target, &Admin::Stub::AcceptRestore, {}, [](const admin::v1::AcceptRestoreResponse&) {
              std::cout << "the array serves what it holds now\n";
            });
      });
}

void PrintOrphans(const admin::v1::ListOrphansResponse& response) {
  if (response.orphans().empty()) std::cout << "no files are set aside\n";
  for (const admin::v1::OrphanFile& orphan : response.orphans()) {
    std::cout << orphan.name() << "  " << orphan.taken_bytes() << " bytes  last written "
              << absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixSeconds(orphan.changed_seconds()),
                                  absl::UTCTimeZone())
              << "\n";
  }
}

void AddOrphans(CLI::App* app, int* exit_code) {
  CLI::App* orphans = app->add_subcommand(
      "orphans", "Files of the pool that its catalogue does not know; they may be somebody's volumes");
  orphans->require_subcommand(1);
  const auto target = std::make_shared<AdminTarget>();
  AddAdminCommand(orphans, "list", "List them", target.get())->callback([=] {
    *exit_code = CallServer<admin::v1::ListOrphansRequest, admin::v1::ListOrphansResponse>(
        *target, &Admin::Stub::ListOrphans, {}, PrintOrphans);
  });
  const auto names = std::make_shared<std::vector<std::string>>();
  CLI::App* remove = AddAdminCommand(orphans, "delete", "Delete some of them for good", target.get());
  remove->add_option("NAME", *names, "Their names, as listed")->required();
  remove->callback([=] {
    admin::v1::DeleteOrphansRequest request;
    request.mutable_names()->Assign(names->begin(), names->end());
    *exit_code = CallServer<admin::v1::DeleteOrphansRequest, admin::v1::DeleteOrphansResponse>(
        *target, &Admin::Stub::DeleteOrphans, request,
        [](const admin::v1::DeleteOrphansResponse&) { std::cout << "deleted\n"; });
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<kube::KubeClient>> InClusterClient() {
  ASSIGN_OR_RETURN(const kube::KubeConfig config, kube::InClusterConfig());
  return kube::MakeKubeClient(config);
}

void AddAdminCommands(CLI::App* app, int* exit_code, const MakeClient& cluster) {
  AddStatus(app, exit_code);
  AddFence(app, exit_code, cluster);
  AddUnfence(app, exit_code, cluster);
  AddAllow(app, exit_code, cluster);
  AddAcceptRestore(app, exit_code);
  AddOrphans(app, exit_code);
  AddRemovalCommands(app, exit_code);
  AddReassignCommand(app, exit_code);
  AddListCommands(app, exit_code, cluster);
  AddExplainCommand(app, exit_code, cluster);
  AddImportCommand(app, exit_code, cluster);
  AddTopCommand(app, exit_code, cluster);
  AddDoctorCommand(app, exit_code, cluster);
  AddSupportBundleCommand(app, exit_code, cluster);
  AddUninstallCheckCommand(app, exit_code, cluster);
}

}  // namespace lunkeeper
