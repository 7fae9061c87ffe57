#pragma once
// A node's connections to the controller replicas: one for each address that the configured names resolve to,
// or that another replica has named. The names are resolved again every five seconds, so replicas may come
// and go. Thread-safe. A dead connection is noticed within about five seconds even without a packet from the
// peer, and its calls end with UNAVAILABLE.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/periodic.h"
#include "base/steady_mutex.h"
#include "fencing/protocol/coordinator.grpc.pb.h"

namespace lunkeeper {

struct ReplicaOptions {
  std::vector<std::string> addresses;  // host:port; a host name may resolve to several replicas
  std::string server_name;             // the name in their certificates; empty: the host
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string token_file;  // read for each call: kubelet replaces it long before the token expires
};

struct Replica {
  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<coordinator::v1::Coordinator::Stub> stub;
};

class Replicas {
 public:
  explicit Replicas(ReplicaOptions options);

  // All replicas: connected ones first, of them the ones whose last call failed, within 10 s, last. Waits
  // until `deadline` for the first names to resolve; empty: none did.
  std::vector<std::shared_ptr<const Replica>> ListReplicas(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // Connects at once to replicas that another one has named, as host:port with a number for the host. One
  // that is not named again within 15 s, and to which no configured name leads, goes. With 32 replicas no
  // more are added, whatever is named. Never blocks.
  void AddNamedReplicas(const std::vector<std::string>& addresses) ABSL_LOCKS_EXCLUDED(mutex_);
  // Gives a call its deadline and the node's token. UNAUTHENTICATED: the file holds no token.
  absl::Status PrepareCall(grpc::ClientContext* context, absl::Time deadline) const;
  using Call = std::function<grpc::Status(coordinator::v1::Coordinator::Stub&, grpc::ClientContext*)>;
  // Calls one replica after another until one answers or `deadline` passes. An answer, good or bad, is final;
  // see fencing/protocol/answer_mark.h. UNAVAILABLE: none answered; the message begins with `what` and says
  // of each one that was asked what became of that.
  absl::Status CallAny(const std::string& what, absl::Time deadline, const Call& call);

 private:
  struct Entry {
    std::shared_ptr<const Replica> replica;
    std::optional<std::chrono::steady_clock::time_point> named_at;   // by another replica
    std::optional<std::chrono::steady_clock::time_point> failed_at;  // if the last call was not answered
  };

  void RefreshReplicas() ABSL_LOCKS_EXCLUDED(mutex_);
  void NoteOutcome(const Replica& replica, bool answered) ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<const Replica> ConnectTo(const std::string& address, const std::string& name) const;

  const ReplicaOptions options_;
  SteadyMutex mutex_;
  std::map<std::string, Entry> replicas_ ABSL_GUARDED_BY(mutex_);  // by numeric address
  Periodic refresh_;                                               // last: its thread uses the other members
};

}  // namespace lunkeeper
