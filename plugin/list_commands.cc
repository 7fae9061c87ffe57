// Each command asks the server once, and the API server once for each kind of name. Where that is not there
// or does not answer, a list has ids only, and standard error says why: on a storage host that is the usual
// case.
#include "plugin/list_commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "plugin/admin_call.h"
#include "plugin/cluster_view.h"
#include "plugin/table.h"

namespace lunkeeper {
namespace {

using admin::v1::Admin;

// The arguments and surroundings of one of these commands.
struct ListCommand {
  AdminTarget target;
  Output output = Output::kTable;
  MakeClient cluster;

  NamesById ReadOrWarn(ReadNames read, const char* what) const {
    return ReadNamesOrWarn(cluster, read, what, target);
  }
  // `whole`: all arrays have answered. Otherwise nothing is not none.
  void Print(const Table& table, const char* things, const absl::Status& whole) const {
    if (table.empty() && output != Output::kJson) {
      if (whole.ok()) std::cout << "no " << things << '\n';
    } else {
      table.Print(std::cout, output);
    }
  }
};

Cell NameOf(const NamesById& names, const std::string& id) {
  const auto found = names.find(id);
  return OrDash(found == names.end() ? "" : found->second);
}

// "-", and null for scripts, if there is no limit.
Cell LimitCell(uint64_t limit, uint64_t unit) {
  if (limit == 0) return {"-", nullptr};
  return {absl::StrCat(limit / unit), limit};
}

absl::Status PrintVolumes(const ListCommand& command) {
  ASSIGN_OR_RETURN(const auto response,
                   (AskServer<admin::v1::ListVolumesRequest, admin::v1::ListVolumesResponse>(
                       command.target, &Admin::Stub::ListVolumes, {})));
  const NamesById claims = command.ReadOrWarn(ReadClaims, "claims");
  Table table({{"VOLUME", "id"},
               {"CLAIM", "claim"},
               {"SIZE", "size_bytes"},
               {"NODES", "nodes"},
               {"NAME", "name", true},
               {"MADE-FOR", "first_claim", true},
               {"ARRAY", "array", true},
               {"PROVISIONING", "provisioning", true},
               {"DURABILITY", "durability", true},
               {"DIGESTS", "digests", true},
               {"MAX-IOPS", "max_iops", true},
               {"MAX-MIB/S", "max_bandwidth_bytes", true},
               {"CREATED", "created", true}});
  for (const auto& volume : response.volumes()) {
    const std::vector<std::string> nodes(volume.nodes().begin(), volume.nodes().end());
    table.AddRow({volume.id(), NameOf(claims, volume.id()), SizeCell(volume.size_bytes()),
                  Cell(nodes.empty() ? "-" : absl::StrJoin(nodes, " "), nodes), volume.name(),
                  OrDash(volume.claim()), volume.array(), volume.provisioning(), volume.durability(),
                  volume.digests(), LimitCell(volume.max_iops(), 1),
                  LimitCell(volume.max_bandwidth_bytes(), kMiB), TimeCell(volume.created_unix_seconds())});
  }
  const absl::Status whole = CheckNoneAway(response);
  command.Print(table, "volumes", whole);
  return whole;
}

absl::Status PrintSnapshots(const ListCommand& command) {
  ASSIGN_OR_RETURN(const auto response,
                   (AskServer<admin::v1::ListSnapshotsRequest, admin::v1::ListSnapshotsResponse>(
                       command.target, &Admin::Stub::ListSnapshots, {})));
  const NamesById names = command.ReadOrWarn(ReadVolumeSnapshots, "VolumeSnapshots");
  const NamesById claims = command.ReadOrWarn(ReadClaims, "claims");
  Table table({{"SNAPSHOT", "id"},
               {"VOLUMESNAPSHOT", "volume_snapshot"},
               {"CLAIM", "claim"},
               {"SIZE", "size_bytes"},
               {"READY", "ready"},
               {"GROUP", "group", true},
               {"VOLUME", "volume", true},
               {"NAME", "name", true},
               {"ARRAY", "array", true},
               {"CREATED", "created", true}});
  for (const auto& snapshot : response.snapshots()) {
    table.AddRow({snapshot.id(), NameOf(names, snapshot.id()), NameOf(claims, snapshot.volume()),
                  SizeCell(snapshot.size_bytes()), Cell(snapshot.ready() ? "yes" : "no", snapshot.ready()),
                  OrDash(snapshot.group()), snapshot.volume(), snapshot.name(), snapshot.array(),
                  TimeCell(snapshot.created_unix_seconds())});
  }
  const absl::Status whole = CheckNoneAway(response);
  command.Print(table, "snapshots", whole);
  return whole;
}

absl::StatusOr<admin::v1::StatusResponse> AskStatus(const ListCommand& command) {
  return AskServer<admin::v1::StatusRequest, admin::v1::StatusResponse>(command.target, &Admin::Stub::Status,
                                                                        {});
}

void AddGatewayCells(const admin::v1::StatusResponse& status, const std::string& array,
                     std::vector<Cell>& row) {
  const auto is_its = [&](const admin::v1::GatewayStatus& gateway) { return gateway.array() == array; };
  const auto found = std::ranges::find_if(status.gateways(), is_its);
  const bool known = found != status.gateways().end();
  row.push_back(OrDash(known ? found->host() : ""));
  row.push_back(TimeCell(known ? found->since_unix_seconds() : 0));
  row.push_back(OrDash(known ? found->change() : ""));
}

absl::Status PrintArrays(const ListCommand& command) {
  ASSIGN_OR_RETURN(const auto status, AskStatus(command));
  Table table({{"ARRAY", "name"},
               {"SERVES", "serves"},
               {"SIZE", "total_bytes"},
               {"AVAILABLE", "available_bytes"},
               {"GRANTS", "grants"},
               {"FENCES", "fences"},
               {"GATEWAY", "gateway"},
               {"GATEWAY SINCE", "gateway_since", true},
               {"LAST CHANGE", "gateway_change", true}});
  // Not 0: a script must not take an array that is away for an empty one.
  const Cell unknown("-", nullptr);
  for (const auto& array : status.arrays()) {
    std::vector<Cell> row = {array.name(), Cell("no", false), unknown, unknown, unknown, unknown};
    if (array.not_serving().empty()) {
      row = {array.name(),
             Cell("yes", true),
             SizeCell(array.total_bytes()),
             SizeCell(array.available_bytes()),
             Cell(absl::StrCat(array.grants_size()), array.grants_size()),
             Cell(absl::StrCat(array.fences_size()), array.fences_size())};
    }
    AddGatewayCells(status, array.name(), row);
    table.AddRow(std::move(row));
  }
  const absl::Status whole = CheckAllServe(status);
  command.Print(table, "arrays", whole);
  return whole;
}

// What arrays know of one node, by its id.
struct NodeUse {
  std::set<std::string> volumes;
  uint32_t sessions = 0;
  std::vector<std::string> fenced_at;  // arrays
};

std::map<std::string, NodeUse> CollectUses(const admin::v1::StatusResponse& status) {
  std::map<std::string, NodeUse> uses;
  for (const auto& array : status.arrays()) {
    for (const auto& grant : array.grants()) {
      uses[grant.node()].volumes.insert(grant.volume());
      uses[grant.node()].sessions += grant.sessions();
    }
    for (const auto& fence : array.fences()) uses[fence.node()].fenced_at.push_back(array.name());
  }
  return uses;
}

// A node that was rebuilt has two ids, of which the old one may still be fenced: a row each.
absl::Status PrintNodes(const ListCommand& command) {
  ASSIGN_OR_RETURN(const auto status, AskStatus(command));
  const NamesById nodes = command.ReadOrWarn(ReadNodes, "names of nodes");
  const NamesById phases = command.ReadOrWarn(ReadFencePhases, "NodeFences");
  std::map<std::string, NodeUse> uses = CollectUses(status);
  // Nodes without volumes get a row, too, and so do fenced ones that no array knows any more.
  for (const NamesById* names : {&nodes, &phases})
    for (const auto& entry : *names) uses[entry.first];
  Table table({{"NODE", "name"},
               {"VOLUMES", "volumes"},
               {"SESSIONS", "sessions"},
               {"NODEFENCE", "node_fence"},
               {"FENCED AT", "fenced_at"},
               {"ID", "id"}});
  for (const auto& [id, use] : uses) {
    table.AddRow({NameOf(nodes, id), Cell(absl::StrCat(use.volumes.size()), use.volumes),
                  Cell(absl::StrCat(use.sessions), use.sessions), NameOf(phases, id),
                  Cell(use.fenced_at.empty() ? "-" : absl::StrJoin(use.fenced_at, " "), use.fenced_at), id});
  }
  const absl::Status whole = CheckAllServe(status);
  command.Print(table, "nodes", whole);
  return whole;
}

}  // namespace

void AddListCommands(CLI::App* app, int* exit_code, const MakeClient& cluster) {
  const auto add = [&](const char* name, const char* what, absl::Status (*print)(const ListCommand&)) {
    // CLI11 fills it in and runs the callback after this function has returned.
    const auto command = std::make_shared<ListCommand>();
    command->cluster = cluster;
    CLI::App* added = AddAdminCommand(app, name, what, &command->target);
    const std::map<std::string, Output> outputs = {
        {"table", Output::kTable}, {"wide", Output::kWide}, {"json", Output::kJson}};
    added->add_option("-o,--output", command->output, "table, wide or json")
        ->transform(CLI::CheckedTransformer(outputs));
    added->callback([=] { *exit_code = ExitCode(print(*command)); });
  };
  add("volumes", "List the arrays' volumes, with their claims and the nodes that have them", PrintVolumes);
  add("snapshots", "List the arrays' snapshots, with their VolumeSnapshots", PrintSnapshots);
  add("nodes", "List the nodes: how many volumes they have, and whether they are fenced", PrintNodes);
  add("arrays", "List the arrays: whether they serve, and how much room they have", PrintArrays);
}

}  // namespace lunkeeper
