#pragma once
// What the operator's commands share: the options, one call to a running server's socket, and how an error
// becomes text and an exit code. One thread.

#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/grpc_status.h"
#include "plugin/admin.grpc.pb.h"

namespace CLI {
class App;
}

namespace lunkeeper {

struct AdminTarget {
  std::string endpoint;
  // A fence drains for up to --drain-seconds (30).
  int timeout_seconds = 90;
};

// A command with the options that all of them have. `target` outlives it.
CLI::App* AddAdminCommand(CLI::App* app, const char* name, const char* what, AdminTarget* target);

// The option for the server's socket alone.
void AddAdminEndpoint(CLI::App* command, AdminTarget* target);

// 0, or 1 with the error on standard error: its text and its code's name, so that a script can tell an error
// from an answer by the exit code alone.
int ExitCode(const absl::Status& status);

std::unique_ptr<admin::v1::Admin::Stub> ConnectToServer(const AdminTarget& target);
void SetDeadline(const AdminTarget& target, grpc::ClientContext& context);

template <class Request, class Response>
using AdminMethod = grpc::Status (admin::v1::Admin::Stub::*)(grpc::ClientContext*, const Request&, Response*);

template <class Request, class Response>
absl::StatusOr<Response> AskServer(const AdminTarget& target, AdminMethod<Request, Response> method,
                                   const Request& request) {
  const auto stub = ConnectToServer(target);
  grpc::ClientContext context;
  SetDeadline(target, context);
  Response response;
  const grpc::Status status = (stub.get()->*method)(&context, request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

// UNAVAILABLE, with names and reasons: some arrays did not answer, and a list lacks what they have.
template <class Response>
absl::Status CheckNoneAway(const Response& response) {
  std::vector<std::string> away;
  for (const auto& array : response.away())
    away.push_back(
        absl::StrCat("array ", array.array(), " does not answer, and what it has is missing: ", array.why()));
  return away.empty() ? absl::OkStatus() : absl::UnavailableError(absl::StrJoin(away, "; "));
}

// The same for arrays that answer, but do not serve.
absl::Status CheckAllServe(const admin::v1::StatusResponse& status);

// Makes one call and, if it succeeds, prints the response. Returns the exit code.
template <class Request, class Response>
int CallServer(const AdminTarget& target, AdminMethod<Request, Response> method, const Request& request,
               const std::function<void(const Response&)>& print) {
  const absl::StatusOr<Response> response = AskServer<Request, Response>(target, method, request);
  if (response.ok()) print(*response);
  return ExitCode(response.status());
}

}  // namespace lunkeeper
