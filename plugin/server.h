#pragma once
// A gRPC server: services on one unix socket, or behind TLS on a TCP port.
//
// Threads: gRPC's synchronous server, with one completion queue and two idle pollers. A NodeStage may block
// for a minute while it waits for a grant, and many may do so at once; this server takes another thread for
// each running call and lets it go afterwards, so nobody starves and an idle plugin stays small. (The
// callback API would need a thread pool of our own sized for the worst case, to the same end.) Beyond
// `max_running_calls` a call is answered RESOURCE_EXHAUSTED.
//
// Every call is counted and logged (see rpc_observer.h). An exception thrown by a service becomes UNKNOWN for
// that call alone. The socket has mode 0600. A socket file that nobody listens on is replaced; one in use is
// left alone. On TCP, connections come through a ConnectionGate, and a client that has gone without a word is
// noticed within about fifteen seconds; its calls are cancelled.
//
// Thread-safe. The services and the Metrics outlive the server.

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/metrics.h"
#include "base/steady_mutex.h"
#include "plugin/connection_gate.h"

namespace lunkeeper {

struct ServerOptions {
  std::string endpoint;  // unix:///path, unix:/path or /path; with credentials host:port
  std::shared_ptr<grpc::ServerCredentials> credentials = nullptr;  // null: a unix socket
  int max_request_bytes = 1 << 20;  // a larger request is answered RESOURCE_EXHAUSTED
  int max_running_calls = 1024;
  ConnectionLimits connections = {};  // on TCP
};

// The absolute path in an endpoint. INVALID_ARGUMENT: another scheme, a relative path, or one too long for a
// socket.
absl::StatusOr<std::string> SocketPath(const std::string& endpoint);

class Server {
 public:
  // FAILED_PRECONDITION: the path is taken by another server, or by something that is no socket. UNAVAILABLE:
  // the port cannot be listened on.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services,
                                                       Metrics* metrics);
  // Waits for every running call, cancelled or not.
  ~Server();

  // Stops accepting calls and lets the running ones finish; cancels the calls that still run after `limit`.
  // False when some still run a second later: the caller may then end the process, because every call may be
  // repeated.
  bool Stop(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mutex_);

  // Where it really listens, for a TCP endpoint whose port was 0.
  int port() const { return gate_ != nullptr ? gate_->port() : 0; }

 private:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  explicit Server(std::unique_ptr<ConnectionGate> gate) : gate_(std::move(gate)) {}
  void Serve(UniqueFd connection);

  std::unique_ptr<Acceptor> acceptor_;
  // The gate hands connections to the acceptor, and the server's calls report their ends to the gate.
  const std::unique_ptr<ConnectionGate> gate_;  // null: a unix socket
  std::unique_ptr<grpc::Server> server_;
  SteadyMutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread stopper_;  // grpc::Server::Shutdown has a deadline for the calls, but none of its own
};

}  // namespace lunkeeper
