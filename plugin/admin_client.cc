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
  if (!status.ok()) {
    std::cerr << "lunkeeper: " << status.error_message() << " ("
              << absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code())) << ")\n";
    return 1;
  }
  print(response);
  return 0;
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
  if (!response.failover().empty()) std::cout << "\nfailover\n";
  for (const std::string& line : response.failover()) std::cout << "  " << line << '\n';
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
  if (response.node_id().empty()) return;
  std::cout << "node " << response.node_id() << '\n';
  PrintDevices(response);
}

// A command with the options all of them have.
CLI::App* AddCommand(CLI::App* app, const char* name, const char* what,
                     const std::shared_ptr<Target>& target) {
  CLI::App* command = app->add_subcommand(name, what);
  AddEndpointOption(command, &target->endpoint);
  command->add_option("--timeout", target->timeout_seconds, "Seconds to wait for the answer")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  return command;
}

template <class Request>
void AddArrayOption(CLI::App* command, const std::shared_ptr<Request>& request) {
  command->add_option_function<std::string>(
      "--array", [=](const std::string& array) { request->set_array(array); },
      "Which array; needed where there are several, each of which has fences of its own");
}

void AddStatus(CLI::App* app, int* exit_code) {
  const auto target = std::make_shared<Target>();
  AddCommand(app, "status", "What a running server knows: grants, fences, devices", target)->callback([=] {
    *exit_code = Call<admin::v1::StatusRequest, admin::v1::StatusResponse>(*target, &Admin::Stub::Status, {},
                                                                           PrintStatus);
  });
}

void AddFence(CLI::App* app, int* exit_code) {
  const auto target = std::make_shared<Target>();
  const auto request = std::make_shared<admin::v1::FenceRequest>();
  CLI::App* command =
      AddCommand(app, "fence", "Take a node's volumes away, for good, and give it no new ones", target);
  command
      ->add_option_function<std::string>(
          "node", [=](const std::string& node) { request->set_node(node); },
          "The node's id, as `status` shows it")
      ->required();
  command->add_option_function<std::vector<std::string>>(
      "--volume",
      [=](const std::vector<std::string>& volumes) {
        request->mutable_volumes()->Assign(volumes.begin(), volumes.end());
      },
      "Only these volumes; without it, all the node has");
  AddArrayOption(command, request);
  command->callback([=] {
    *exit_code = Call<admin::v1::FenceRequest, admin::v1::FenceResponse>(
        *target, &Admin::Stub::Fence, *request, [=](const admin::v1::FenceResponse& response) {
          const auto& fence = response.fence();
          std::cout << "node " << fence.node() << " is fenced: no write of it reaches "
                    << (fence.volumes().empty() ? "any volume of this array"
                                                : absl::StrJoin(fence.volumes(), ", "))
                    << "\nto let it take volumes again: lunkeeper unfence " << fence.node()
                    << " --generation " << fence.generation()
                    << (request->array().empty() ? "" : " --array " + request->array()) << '\n';
        });
  });
}

void AddUnfence(CLI::App* app, int* exit_code) {
  const auto target = std::make_shared<Target>();
  const auto request = std::make_shared<admin::v1::UnfenceRequest>();
  CLI::App* command = AddCommand(app, "unfence", "Let a node take volumes again", target);
  command
      ->add_option_function<std::string>(
          "node", [=](const std::string& node) { request->set_node(node); },
          "The node's id, as `status` shows it")
      ->required();
  command
      ->add_option_function<uint64_t>(
          "--generation", [=](uint64_t generation) { request->set_generation(generation); },
          "Of the fence to end, as `status` shows it")
      ->required();
  AddArrayOption(command, request);
  command->callback([=] {
    *exit_code = Call<admin::v1::UnfenceRequest, admin::v1::UnfenceResponse>(
        *target, &Admin::Stub::Unfence, *request, [&](const admin::v1::UnfenceResponse&) {
          std::cout << "node " << request->node() << " is not fenced\n";
        });
  });
}

void AddAcceptRestore(CLI::App* app, int* exit_code) {
  const auto target = std::make_shared<Target>();
  AddCommand(app, "accept-restore", "Serve an array that was restored from an older copy, as it is", target)
      ->callback([=] {
        *exit_code = Call<admin::v1::AcceptRestoreRequest, admin::v1::AcceptRestoreResponse>(
            *target, &Admin::Stub::AcceptRestore, {}, [](const admin::v1::AcceptRestoreResponse&) {
              std::cout << "the array serves what it holds now\n";
            });
      });
}

}  // namespace

void AddAdminCommands(CLI::App* app, int* exit_code) {
  AddStatus(app, exit_code);
  AddFence(app, exit_code);
  AddUnfence(app, exit_code);
  AddAcceptRestore(app, exit_code);
}

}  // namespace lunkeeper
