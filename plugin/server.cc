// Most of this file is about the places where gRPC's defaults do not fit: it would replace a socket in use,
// make it accessible to every user until the next chmod, share a TCP port with another process, and keep
// threads by the number of processors.
#include "plugin/server.h"

#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/unix_socket.h"
#include "plugin/rpc_observer.h"

namespace lunkeeper {
namespace {

// Removes a dead socket at the path, and nothing else: a live one is another server's, and anything but a
// socket is somebody's mistake in --endpoint.
absl::Status ClearPath(const std::string& path) {
  const std::string what = absl::StrCat("serve on ", path, ": ");
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return absl::ErrnoToStatus(errno, what);
    const std::string parent = path.substr(0, std::max<size_t>(path.rfind('/'), 1));
    if (::stat(parent.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(what, "there is no directory ", parent, ": make it first"));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(what, "something else has that name: remove it first"));
  }
  if (IsListening(path)) {
    return absl::FailedPreconditionError(absl::StrCat(what, "another process listens there: stop it first"));
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return absl::ErrnoToStatus(errno, what);
  return absl::OkStatus();
}

// A client that loses its power sends no FIN: after 10 s without traffic it is pinged, and 5 s later its
// connection ends and its calls are cancelled, so that nobody waits for a grant on behalf of a dead node.
// Clients do the same with us, more often than gRPC allows by default, hence no limit of pings.
void KeepTcpAlive(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // two servers never share a port unnoticed
}

std::unique_ptr<grpc::Server> BuildServer(const ServerOptions& options, const std::string& address,
                                          const std::vector<grpc::Service*>& services, Metrics* metrics,
                                          int* port) {
  grpc::ResourceQuota quota("lunkeeper");
  // The upper bound of threads, and so of calls; gRPC answers RESOURCE_EXHAUSTED beyond it.
  quota.SetMaxThreads(options.max_running_calls);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  // One queue: these servers handle a few calls a second, and each queue has threads of its own.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  builder.SetMaxReceiveMessageSize(options.max_request_bytes);
  if (options.credentials != nullptr) KeepTcpAlive(builder);
  builder.AddListeningPort(
      address, options.credentials != nullptr ? options.credentials : grpc::InsecureServerCredentials(),
      port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> observers;
  observers.push_back(MakeRpcObserverFactory(metrics));
  builder.experimental().SetInterceptorCreators(std::move(observers));
  // Only root may connect, from the first moment on; a chmod afterwards would leave a gap.
  const mode_t mask = ::umask(0177);
  auto server = builder.BuildAndStart();
  ::umask(mask);
  return server;
}

// The address in gRPC's form, with the path cleared if it is a socket.
absl::StatusOr<std::string> PrepareAddress(const ServerOptions& options) {
  if (options.credentials != nullptr) return options.endpoint;
  ASSIGN_OR_RETURN(const std::string path, SocketPath(options.endpoint));
  RETURN_IF_ERROR(ClearPath(path));
  return absl::StrCat("unix:", path);
}

}  // namespace

absl::StatusOr<std::string> SocketPath(const std::string& endpoint) {
  absl::string_view path = endpoint;
  if (!absl::ConsumePrefix(&path, "unix://")) absl::ConsumePrefix(&path, "unix:");
  if (!absl::StartsWith(path, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("endpoint \"", endpoint, "\": want unix:///absolute/path of a unix socket"));
  }
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("endpoint \"", endpoint, "\": longer than ",
                                                   sizeof(sockaddr_un::sun_path) - 1, " bytes"));
  }
  return std::string(path);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services,
                                                      Metrics* metrics) {
  ASSIGN_OR_RETURN(const std::string address, PrepareAddress(options));
  int port = 0;
  auto server = BuildServer(options, address, services, metrics, &port);
  if (server == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("serve on ", options.endpoint, ": gRPC could not listen there"));
  }
  return std::unique_ptr<Server>(new Server(std::move(server), port));
}

bool Server::Stop(absl::Duration limit) {
  // On a thread of its own: Shutdown cancels calls at its deadline, then waits for each to return however
  // long that takes, and this function must return.
  if (!stopper_.joinable()) {
    stopper_ = std::thread([this, deadline = absl::ToChronoTime(absl::Now() + limit)] {
      server_->Shutdown(deadline);
      stopped_.Notify();
    });
  }
  return stopped_.WaitForNotificationWithTimeout(limit + absl::Seconds(1));
}

Server::~Server() {
  Stop(absl::ZeroDuration());
  stopper_.join();
  server_->Wait();
}

}  // namespace lunkeeper
