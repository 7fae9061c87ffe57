#include "plugin/admin_call.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "plugin/options.h"
#include "plugin/server.h"

namespace lunkeeper {
namespace {

constexpr char kAdminEndpoint[] = "LUNKEEPER_ADMIN_ENDPOINT";

}  // namespace

CLI::App* AddAdminCommand(CLI::App* app, const char* name, const char* what, AdminTarget* target) {
  CLI::App* command = app->add_subcommand(name, what);
  AddAdminEndpoint(command, target);
  command->add_option("--timeout", target->timeout_seconds, "Seconds to wait for the answer")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  return command;
}

// Where the server has a socket of its own for these commands, its environment says so.
void AddAdminEndpoint(CLI::App* command, AdminTarget* target) {
  AddEndpointOption(command, &target->endpoint,
                    std::getenv(kAdminEndpoint) != nullptr ? kAdminEndpoint : "CSI_ENDPOINT");
}

int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  std::cerr << "lunkeeper: " << status.message() << " (" << absl::StatusCodeToString(status.code()) << ")\n";
  return 1;
}

// CLI11 has checked the endpoint, so its path is only taken apart here. No TLS: only root can open the
// socket. For the same reason an answer may be as long as it is: a list of all volumes.
std::unique_ptr<admin::v1::Admin::Stub> ConnectToServer(const AdminTarget& target) {
  const absl::StatusOr<std::string> path = SocketPath(target.endpoint);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  return admin::v1::Admin::NewStub(grpc::CreateCustomChannel(absl::StrCat("unix:", path.value_or("")),
                                                             grpc::InsecureChannelCredentials(), arguments));
}

void SetDeadline(const AdminTarget& target, grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(target.timeout_seconds));
}

absl::Status CheckAllServe(const admin::v1::StatusResponse& status) {
  std::vector<std::string> away;
  for (const auto& array : status.arrays()) {
    if (!array.not_serving().empty()) away.push_back(absl::StrCat(array.name(), ": ", array.not_serving()));
    for (const std::string& part : array.unseen())
      away.push_back(absl::StrCat("a part of ", array.name(), ": ", part));
  }
  if (away.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("not all arrays serve: ", absl::StrJoin(away, "; ")));
}

}  // namespace lunkeeper
