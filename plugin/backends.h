#pragma once
// The parts below a server: arrays, if it has the Controller service, and this node's devices, if it has the
// Node service. Made in one place (wiring.cc for the real ones, testing/fake_main.cc for fakes) and passed to
// Serve; no other code knows which they are.

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/metrics.h"
#include "base/periodic.h"
#include "devices/array/arrays.h"
#include "devices/array/gateway_state.h"
#include "devices/array/tgt/tgt_array.h"
#include "devices/datapath/duplicate_store.h"
#include "devices/datapath/initiator.h"
#include "devices/filesystem/filesystem.h"
#include "devices/filesystem/mounter.h"
#include "fencing/failover/array_uses.h"
#include "node/grant_source.h"
#include "node/limit_watch.h"
#include "plugin/gateway_watch.h"
#include "plugin/server.h"

namespace lunkeeper {

// A service for other machines, on a TCP port of its own.
struct Listener {
  std::string address;  // host:port
  std::shared_ptr<grpc::ServerCredentials> credentials;
  std::shared_ptr<grpc::Service> service;
  std::function<void()> leave;  // called before its server stops; ends the calls that wait for something
  ConnectionLimits connections = {};
  int max_request_bytes = ServerOptions().max_request_bytes;
};

// As fencing/failover/array_removal.h says; all empty without failover.
struct ArrayRemovalCalls {
  std::function<absl::StatusOr<std::vector<fencing::VolumeUse>>(const std::string& array, bool force)> remove;
  std::function<absl::StatusOr<std::vector<fencing::VolumeUse>>(const std::string& array)> list_uses;
  std::function<absl::Status(const std::string& array)> add;
};

struct Backends {
  std::shared_ptr<void> owner;  // outlives the rest

  // Null without the Controller service.
  std::shared_ptr<Arrays> arrays;
  std::shared_ptr<GrantStore> all_grants;       // of all arrays
  std::function<absl::Status()> array_serving;  // OK, or why not; empty without an array
  // As TgtArray's; empty where the array is not of this process.
  std::function<absl::Status()> accept_restore;
  std::function<absl::StatusOr<std::vector<OrphanFile>>()> list_orphans;
  std::function<absl::Status(const std::string& name)> delete_orphan;
  std::function<absl::Status(const std::string& folder, const BackupWatch& watch)> back_up;
  std::function<absl::Status(const HandoverWatch& watch)> hand_over;
  // Also refuses while the cluster that has the volumes shows that it runs.
  std::function<absl::StatusOr<Reassigned>(const Reassignment& asked)> reassign;

  // Which gateway serves each array that has some; an array that does not answer is there with epoch 0.
  // Empty: none of them is known here. Takes a second for each array that hangs.
  std::function<std::vector<ArrayGateway>()> ask_gateways;
  // Tells Kubernetes of one that has just changed; OK once it knows, also from another controller. Empty: it
  // is not told.
  std::function<absl::Status(const ArrayGateway&)> tell_gateway;
  std::shared_ptr<GatewayWatch> gateways;  // asks and tells; null without ask_gateways

  // Null, and no node id, without the Node service.
  NodeId node;
  std::unique_ptr<DuplicateStore> duplicates;  // of the data path's descriptors
  std::unique_ptr<Periodic> datapath_starter;  // starts the next data path; null: somebody else does
  std::shared_ptr<Initiator> initiator;
  std::shared_ptr<Initiator> prober;  // of the same devices; its calls end within about a second
  // Of the same devices, what they did and how long it took; empty: not counted.
  std::function<absl::StatusOr<std::vector<Device>>()> list_statistics;
  std::unique_ptr<Filesystem> filesystem;
  std::unique_ptr<Mounter> mounter;
  std::function<absl::Status()> devices_serving;  // OK, or why not; answers within about a second
  std::shared_ptr<GrantSource> grants;            // null: only a publish_context brings a grant
  std::unique_ptr<LimitWatch> limits;             // where grants are those of this process

  std::vector<Listener> listeners;
  std::vector<std::string> peers;  // host:port of the coordinators that it asks
  ArrayRemovalCalls array_removal;
  std::function<std::vector<std::string>()> failover;  // its status, a line each; empty without failover
  std::vector<std::function<void(Metrics&)>> reports;  // called every few seconds, to set gauges
  // What /metrics says besides, written when it is asked for; uses nothing of what is here.
  std::vector<std::function<std::string()>> metric_sources;
  // Called as often as reports; the files of the certificates in use, for the metric of when they expire.
  std::vector<std::function<std::vector<std::string>()>> certificates;

  // OK when every part serves.
  absl::Status CheckReady() const;
  // CheckReady in two: what this process waits for, and what it cannot do without. A data path that died is
  // waited for while its volumes are kept here: a restart of this process would end them.
  absl::Status CheckAwaited() const;
  absl::Status CheckNeeded() const;

 private:
  absl::Status CheckArray() const;
  absl::Status CheckDevices() const;
};

}  // namespace lunkeeper
