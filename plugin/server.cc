#include "plugin/server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "plugin/rpc_observer.h"

namespace lunkeeper {
namespace {

// Is anybody listening there?
bool Answers(const std::string& path) {
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  // EAGAIN: its queue is full, so there is one.
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
         errno == EAGAIN;
}

// Makes room for our socket, without taking anybody's.
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
  if (Answers(path)) {
    return absl::FailedPreconditionError(absl::StrCat(what, "another process listens there: stop it first"));
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return absl::ErrnoToStatus(errno, what);
  return absl::OkStatus();
}

// Clients may be cut off without a word, and theirs may look for us as often as they like.
void KeepTcpAlive(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // two servers never share a port unnoticed
}

std::unique_ptr<grpc::Server> Build(const ServerOptions& options, const std::string& address,
                                    const std::vector<grpc::Service*>& services, Metrics* metrics,
                                    int* port) {
  grpc::ResourceQuota quota("lunkeeper");
  quota.SetMaxThreads(options.max_running_calls);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
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
  const mode_t mask = ::umask(0177);
  auto server = builder.BuildAndStart();
  ::umask(mask);
  return server;
}

// What gRPC is to listen on.
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
  auto server = Build(options, address, services, metrics, &port);
  if (server == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("serve on ", options.endpoint, ": gRPC could not listen there"));
  }
  return std::unique_ptr<Server>(new Server(std::move(server), port));
}

bool Server::Stop(absl::Duration limit) {
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
