// Most of this file is about the places where gRPC's defaults do not fit: it would replace a socket in use,
// make it accessible to every user until the next chmod, take connections without limit, and keep threads by
// the number of processors.
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
// Clients do the same with us every two seconds, more often than gRPC allows by default.
void KeepTcpAlive(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 200);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 32);
}

// Before anybody has proved anything: a handshake ends soon, and a connection has so many calls at most.
void LimitStrangers(grpc::ServerBuilder& builder, int max_running_calls) {
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, max_running_calls);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 8 << 10);  // a token has about 1 KiB
}

void SetThreads(grpc::ServerBuilder& builder, int max_running_calls) {
  grpc::ResourceQuota quota("lunkeeper");
  // The upper bound of threads, and so of calls; gRPC answers RESOURCE_EXHAUSTED beyond it.
  quota.SetMaxThreads(max_running_calls);
  builder.SetResourceQuota(quota);
  // One queue: these servers handle a few calls a second, and each queue has threads of its own.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
}

// Only root may connect to a socket, from the first moment on; a chmod afterwards would leave a gap.
std::unique_ptr<grpc::Server> StartForOwner(grpc::ServerBuilder& builder) {
  const mode_t mask = ::umask(0177);
  auto server = builder.BuildAndStart();
  ::umask(mask);
  return server;
}

// The socket's address in gRPC's form; its path is free.
absl::StatusOr<std::string> PrepareSocket(const std::string& endpoint) {
  ASSIGN_OR_RETURN(const std::string path, SocketPath(endpoint));
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
  // CSI, "CSI_ENDPOINT": all UNIX endpoints end so.
  if (!absl::EndsWith(path, ".sock")) {
    return absl::InvalidArgumentError(
        absl::StrCat("endpoint \"", endpoint, "\": want a name that ends in .sock"));
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
  grpc::ServerBuilder builder;
  SetThreads(builder, options.max_running_calls);
  builder.SetMaxReceiveMessageSize(options.max_request_bytes);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<ConnectionGate> gate;
  std::unique_ptr<Acceptor> acceptor;
  if (options.credentials != nullptr) {
    ASSIGN_OR_RETURN(gate, ConnectionGate::Open(options.endpoint, options.connections, metrics));
    KeepTcpAlive(builder);
    LimitStrangers(builder, options.max_running_calls);
    acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, options.credentials);
  } else {
    ASSIGN_OR_RETURN(const std::string address, PrepareSocket(options.endpoint));
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  }
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> observers;
  observers.push_back(MakeRpcObserverFactory(metrics, gate.get()));
  builder.experimental().SetInterceptorCreators(std::move(observers));
  std::unique_ptr<Server> server(new Server(std::move(gate)));
  server->acceptor_ = std::move(acceptor);
  server->server_ = StartForOwner(builder);
  if (server->server_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("serve on ", options.endpoint, ": gRPC could not listen there"));
  }
  if (server->gate_ != nullptr)
    server->gate_->Start([at = server.get()](UniqueFd fd) { at->Serve(std::move(fd)); });
  return server;
}

void Server::Serve(UniqueFd connection) {
  Acceptor::NewConnectionParameters parameters;
  parameters.fd = connection.Release();  // gRPC owns it now
  acceptor_->HandleNewConnection(&parameters);
}

bool Server::Stop(absl::Duration limit) {
  // On a thread of its own: Shutdown cancels calls at its deadline, then waits for each to return however
  // long that takes, and this function must return.
  if (gate_ != nullptr) gate_->Stop();
  if (!stopper_.joinable()) {
    stopper_ = std::thread([this, deadline = absl::ToChronoTime(absl::Now() + limit)] {
      server_->Shutdown(deadline);
      const SteadyLock lock(&mutex_);
      stopped_ = true;
    });
  }
  const SteadyLock lock(&mutex_);
  return mutex_.AwaitUntil(absl::Condition(&stopped_), SteadyDeadline(limit + absl::Seconds(1)));
}

Server::~Server() {
  if (server_ == nullptr) return;  // it did not start
  Stop(absl::ZeroDuration());
  stopper_.join();
  server_->Wait();
}

}  // namespace lunkeeper
