#pragma once
// A node's connections to the controller replicas: one to each address that the names it was given lead to
// now, looked up again every few seconds, so that replicas may come and go. Thread-safe. A dead connection is
// noticed within about five seconds even if nobody says so, and its calls end with UNAVAILABLE.

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/periodic.h"
#include "fencing/protocol/coordinator.grpc.pb.h"

namespace lunkeeper {

struct ReplicaOptions {
  std::vector<std::string> addresses;  // host:port; a host that is a name may lead to several
  std::string server_name;             // what their certificates are for; empty: the host
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string token_file;  // read for each call, since it is replaced long before the token in it expires
};

struct Replica {
  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<coordinator::v1::Coordinator::Stub> stub;
};

class Replicas {
 public:
  explicit Replicas(ReplicaOptions options);

  // Those whose connection is up first. Waits until `deadline` for the first look-up to have an answer;
  // empty: it has none.
  std::vector<std::shared_ptr<const Replica>> All(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // Gives a call the deadline and the node's token. UNAUTHENTICATED: there is none in the file.
  absl::Status Prepare(grpc::ClientContext* context, absl::Time deadline) const;
  using Call = std::function<grpc::Status(coordinator::v1::Coordinator::Stub&, grpc::ClientContext*)>;
  // Makes the call to one replica after another, again and again until `deadline`; an answer, good or bad, is
  // final. UNAVAILABLE: none answered; the message begins with `what` and says which were asked.
  absl::Status Ask(const std::string& what, absl::Time deadline, const Call& call);

 private:
  void LookUp() ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<const Replica> Connect(const std::string& address, const std::string& name) const;

  const ReplicaOptions options_;
  absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<const Replica>> replicas_ ABSL_GUARDED_BY(mutex_);
  Periodic look_up_;  // last: it uses the others
};

}  // namespace lunkeeper
