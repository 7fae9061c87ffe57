#pragma once
// A node's connections to the controller replicas: one for each address that the configured names resolve to,
// or that another replica has named. The names are resolved again every five seconds, so replicas may come
// and go. Thread-safe. A dead connection is noticed within about five seconds even without a packet from the
// peer, and its calls end with UNAVAILABLE.

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/periodic.h"
#include "fencing/agent/replica_table.h"
#include "fencing/protocol/coordinator.grpc.pb.h"

namespace lunkeeper {

struct ReplicaOptions {
  std::vector<std::string> addresses;  // host:port; a host name may resolve to several replicas
  std::string server_name;             // the name in their certificates; empty: the host
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string token_file;  // read for each call: kubelet replaces it long before the token expires
};

class Replica final : public ReplicaConnection {
 public:
  Replica(std::string its_address, std::shared_ptr<grpc::Channel> its_channel, std::string token_file);

  // Gives a call its deadline and the node's token. UNAUTHENTICATED: the file holds no token.
  absl::Status PrepareCall(grpc::ClientContext* context, absl::Time deadline) const;

  bool IsConnected() const override;
  CallOutcome AcquireGrant(const NodeId& node, const VolumeId& volume, const WantedUse& use,
                           absl::Duration wait, absl::Duration limit, Grant* grant) const override;
  CallOutcome ReleaseGrant(const NodeId& node, const VolumeId& volume, Generation generation,
                           absl::Duration limit) const override;
  CallOutcome ListGrants(const NodeId& node, const VolumeId& volume, absl::Duration limit,
                         std::vector<HeldGrant>* held) const override;
  CallOutcome OpenHeartbeatLun(const NodeId& node, const std::string& array, absl::Duration limit,
                               Connection* connection) const override;

  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<coordinator::v1::Coordinator::Stub> stub;

 private:
  template <class Request, class Response>
  using Method = grpc::Status (coordinator::v1::Coordinator::Stub::*)(grpc::ClientContext*, const Request&,
                                                                      Response*);
  template <class Request, class Response>
  CallOutcome Call(Method<Request, Response> method, const Request& request, absl::Duration limit,
                   Response* response) const;

  const std::string token_file_;
};

class Replicas {
 public:
  explicit Replicas(ReplicaOptions options);

  // Its calls wait for the first names to resolve, too.
  ReplicaTable& table() { return table_; }
  // As the table's. Waits until `deadline` for the first names to resolve; empty: none did.
  std::vector<std::shared_ptr<const Replica>> ListReplicas(absl::Time deadline);
  // Connects at once to replicas that another one has named, as host:port with a number for the host. Never
  // blocks.
  void AddNamedReplicas(const std::vector<std::string>& addresses);

 private:
  void RefreshReplicas();
  std::shared_ptr<const Replica> ConnectTo(const std::string& address, const std::string& name) const;

  const ReplicaOptions options_;
  ReplicaTable table_;
  Periodic refresh_;  // last: its thread uses the other members
};

}  // namespace lunkeeper
