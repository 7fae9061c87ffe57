#include "plugin/admin_client.h"

#include <grpcpp/grpcpp.h>

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
#include "base/grpc_status.h"
#include "base/host_name.h"
#include "base/status_macros.h"
#include "fencing/failover/manual_fence.h"
#include "plugin/admin.grpc.pb.h"
#include "plugin/options.h"
#include "plugin/server.h"

namespace lunkeeper {
namespace {

using admin::v1::Admin;

struct Target {
  std::string endpoint;
  int timeout_seconds = 90;
};

int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  std::cerr << "lunkeeper: " << status.message() << " (" << absl::StatusCodeToString(status.code()) << ")\n";
  return 1;
}

// Makes one call and, if it is answered well, prints its answer. The exit code.
template <class Request, class Response>
int Call(const Target& target,
         grpc::Status (Admin::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
         const Request& request, const std::function<void(const Response&)>& print) {
  const absl::StatusOr<std::string> path = SocketPath(target.endpoint);
  const auto stub = Admin::NewStub(
      grpc::CreateChannel(absl::StrCat("unix:", path.value_or("")), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(target.timeout_seconds));
  Response response;
  const grpc::Status status = (stub.get()->*method)(&context, request, &response);
  if (status.ok()) print(response);
  return ExitCode(FromGrpcStatus(status));
}

using Table = std::vector<std::vector<std::string>>;

// Rows under a heading, their columns in line. An empty table is one line.
void Print(const std::string& heading, const Table& rows) {
  std::cout << heading << (rows.size() <= 1 ? ": none\n" : ":\n");
  if (rows.size() <= 1) return;
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, " ", row[i], std::string(widths[i] - row[i].size() + 1, ' '));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    std::cout << line << '\n';
  }
}

std::string GiB(uint64_t bytes) {
  return absl::StrCat(bytes >> 30, ".", (bytes >> 20) % 1024 * 10 / 1024, " GiB");
}

void PrintArray(const admin::v1::ArrayStatus& array) {
  if (!array.not_serving().empty()) {
    std::cout << "array " << array.name() << " does not serve: " << array.not_serving() << '\n';
    return;
  }
  std::cout << "array " << array.name() << ": " << GiB(array.available_bytes()) << " of "
            << GiB(array.total_bytes()) << " available\n";
  Table grants = {{"VOLUME", "NODE", "ACCESS", "OWNER", "GENERATION", "SESSIONS", "READS", "WRITES"}};
  for (const auto& grant : array.grants()) {
    grants.push_back({grant.volume(), grant.node(), grant.access(), grant.owner(),
                      absl::StrCat(grant.generation()), absl::StrCat(grant.sessions()),
                      absl::StrCat(grant.reads()), absl::StrCat(grant.writes())});
  }
  Print("grants", grants);
  Table fences = {{"NODE", "GENERATION", "TERM", "VOLUMES"}};
  for (const auto& fence : array.fences()) {
    fences.push_back({fence.node(), absl::StrCat(fence.generation()), absl::StrCat(fence.term()),
                      fence.volumes().empty() ? "-" : absl::StrJoin(fence.volumes(), " ")});
  }
  Print("fenced nodes", fences);
}

void PrintDevices(const admin::v1::StatusResponse& response) {
  Table devices = {{"VOLUME", "DEVICE", "SIZE", "HEALTH", "WHY"}};
  for (const auto& device : response.devices()) {
    devices.push_back(
        {device.volume(), device.path(), GiB(device.size_bytes()), device.health(), device.reason()});
  }
  Print("devices", devices);
}

void PrintStatus(const admin::v1::StatusResponse& response) {
  std::cout << "lunkeeper " << response.version() << ", mode " << response.mode() << ": "
            << (response.not_ready().empty() ? "ready" : "not ready: " + response.not_ready()) << '\n';
  for (const auto& array : response.arrays()) PrintArray(array);
  if (!response.failover().empty()) std::cout << "\nfailover\n";
  for (const std::string& line : response.failover()) std::cout << "  " << line << '\n';
  if (response.node_id().empty()) return;
  std::cout << "node " << response.node_id() << '\n';
  PrintDevices(response);
}

// A command with the options all of them have.
CLI::App* AddCommand(CLI::App* app, const char* name, const char* what, Target* target) {
  CLI::App* command = app->add_subcommand(name, what);
  AddEndpointOption(command, &target->endpoint);
  command->add_option("--timeout", target->timeout_seconds, "Seconds to wait for the answer")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  return command;
}

void AddArrayOption(CLI::App* command, std::string* array) {
  command->add_option("--array", *array, "At this array alone; each has fences of its own");
}

void AddStatus(CLI::App* app, int* exit_code) {
  const auto target = std::make_shared<Target>();
  AddCommand(app, "status", "What a running server knows: grants, fences, devices", target.get())
      ->callback([=] {
        *exit_code = Call<admin::v1::StatusRequest, admin::v1::StatusResponse>(*target, &Admin::Stub::Status,
                                                                               {}, PrintStatus);
      });
}

void AddNode(CLI::App* command, std::string* node) {
  command
      ->add_option("node", *node,
                   "A Node's name, or its driver's id as `status` shows it; the id, at one array")
      ->required();
}

// `lunkeeper fence` and `unfence`: of a whole node through failover, where that runs; or at one array.
struct OperatorCommand {
  Target target;
  std::string node, reason, array;
  std::vector<std::string> volumes;
  uint64_t generation = 0;  // none has it

  fencing::ManualFenceIo Hand(kube::KubeClient& client) const {
    return {client, absl::Now() + absl::Seconds(target.timeout_seconds),
            [](const std::string& line) { std::cout << line << std::endl; }};
  }
};

int FenceAtArray(const OperatorCommand& command_line) {
  if (!command_line.reason.empty())
    return ExitCode(absl::InvalidArgumentError("--reason goes into a NodeFence; an array keeps none"));
  admin::v1::FenceRequest request;
  request.set_node(command_line.node);
  request.set_array(command_line.array);
  request.mutable_volumes()->Assign(command_line.volumes.begin(), command_line.volumes.end());
  return Call<admin::v1::FenceRequest, admin::v1::FenceResponse>(
      command_line.target, &Admin::Stub::Fence, request, [&](const admin::v1::FenceResponse& response) {
        const auto& fence = response.fence();
        std::cout << "node " << fence.node() << " is fenced: no write of it reaches "
                  << (fence.volumes().empty() ? "any volume of this array"
                                              : absl::StrJoin(fence.volumes(), ", "))
                  << "\nto let it take volumes again: lunkeeper unfence " << fence.node() << " --generation "
                  << fence.generation()
                  << (command_line.array.empty() ? "" : " --array " + command_line.array) << '\n';
      });
}

int UnfenceAtArray(const OperatorCommand& command_line) {
  if (command_line.generation == 0)
    return ExitCode(absl::InvalidArgumentError(
        "--generation is needed at an array: of the fence to end, as `lunkeeper status` shows it"));
  admin::v1::UnfenceRequest request;
  request.set_node(command_line.node);
  request.set_array(command_line.array);
  request.set_generation(command_line.generation);
  return Call<admin::v1::UnfenceRequest, admin::v1::UnfenceResponse>(
      command_line.target, &Admin::Stub::Unfence, request, [&](const admin::v1::UnfenceResponse&) {
        std::cout << "node " << command_line.node << " is not fenced\n";
      });
}

// Null: it is to be done at one array, or this is no pod of a cluster.
std::unique_ptr<kube::KubeClient> Failover(const OperatorCommand& command_line, const MakeClient& cluster) {
  if (!command_line.array.empty() || !command_line.volumes.empty() || command_line.generation != 0)
    return nullptr;
  auto client = cluster();
  return client.ok() ? *std::move(client) : nullptr;
}

absl::Status RequestManualFence(const OperatorCommand& command_line, kube::KubeClient& client) {
  return fencing::RequestManualFence(command_line.Hand(client), {command_line.node, command_line.reason,
                                                                 absl::StrCat("operator@", HostName())});
}

void AddFence(CLI::App* app, int* exit_code, const MakeClient& cluster) {
  const auto command_line = std::make_shared<OperatorCommand>();
  CLI::App* command = AddCommand(
      app, "fence", "Take a node's volumes away, for good, and give it no new ones", &command_line->target);
  AddNode(command, &command_line->node);
  command->add_option("--reason", command_line->reason, "Why: for the NodeFence, and whoever reads it");
  command->add_option("--volume", command_line->volumes, "At one array: only these volumes");
  AddArrayOption(command, &command_line->array);
  command->callback([=] {
    const auto client = Failover(*command_line, cluster);
    *exit_code = client ? ExitCode(RequestManualFence(*command_line, *client)) : FenceAtArray(*command_line);
  });
}

void AddUnfence(CLI::App* app, int* exit_code, const MakeClient& cluster) {
  const auto command_line = std::make_shared<OperatorCommand>();
  CLI::App* command = AddCommand(app, "unfence", "Let a node take volumes again", &command_line->target);
  AddNode(command, &command_line->node);
  command->add_option("--generation", command_line->generation,
                      "At one array, where it is needed: of the fence to end, as `status` shows it");
  AddArrayOption(command, &command_line->array);
  command->callback([=] {
    const auto client = Failover(*command_line, cluster);
    *exit_code =
        client ? ExitCode(fencing::RequestManualUnfence(command_line->Hand(*client), command_line->node))
               : UnfenceAtArray(*command_line);
  });
}

void AddAcceptRestore(CLI::App* app, int* exit_code) {
  const auto target = std::make_shared<Target>();
  AddCommand(app, "accept-restore", "Serve an array that was restored from an older copy, as it is",
             target.get())
      ->callback([=] {
        *exit_code = Call<admin::v1::AcceptRestoreRequest, admin::v1::AcceptRestoreResponse>(
            *target, &Admin::Stub::AcceptRestore, {}, [](const admin::v1::AcceptRestoreResponse&) {
              std::cout << "the array serves what it holds now\n";
            });
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
  AddAcceptRestore(app, exit_code);
}

}  // namespace lunkeeper
