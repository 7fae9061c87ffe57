// Who owns what: each struct below holds the objects of one side, in the order in which they need each other,
// so that they are destroyed in the reverse order. The Backends get shared pointers to a member that keep the
// whole struct alive. The threads are the parts' own; this code runs once, on the main thread.
#include "plugin/coordinator_wiring.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/host_name.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/tls.h"
#include "devices/array/array_router.h"
#include "devices/array/remaining_arrays.h"
#include "fencing/agent/coordinator_grant_source.h"
#include "fencing/agent/heartbeat_lun_access.h"
#include "fencing/agent/heartbeat_stream.h"
#include "fencing/agent/kubelet_health.h"
#include "fencing/agent/replicas.h"
#include "fencing/coordinator/authenticator.h"
#include "fencing/coordinator/coordinator_service.h"
#include "fencing/coordinator/kube_token_reviewer.h"
#include "fencing/failover/array_removal.h"
#include "fencing/failover/failover.h"
#include "fencing/failover/gateway_event.h"
#include "fencing/failover/pod_use_check.h"
#include "fencing/failover/removal_record.h"
#include "fencing/failover/replica_poll.h"
#include "fencing/kube/kube_client.h"
#include "plugin/failover_settings.h"
#include "plugin/limits_sink.h"
#include "plugin/other_replicas.h"

namespace lunkeeper {
namespace {

// In a controller.
struct CoordinatorServer {
  std::shared_ptr<Arrays> arrays;
  std::shared_ptr<GrantStore> all_grants;
  std::unique_ptr<kube::KubeClient> kubernetes;
  // A second client with connections of its own: no token review may delay a failover.
  std::unique_ptr<kube::KubeClient> failover_kubernetes;
  std::unique_ptr<TokenReviewer> reviewer;
  std::unique_ptr<Authenticator> authenticator, controllers;  // the second may be null, as the next
  std::unique_ptr<fencing::ReplicaPoll> others;
  std::shared_ptr<RemainingArrays> remaining;  // null with --no-failover, as the next ones
  std::unique_ptr<fencing::RemovalWatch> removal_watch;
  kube::LeaseName lease;  // by which replicas choose the leader
  std::unique_ptr<fencing::Failover> failover;
  std::unique_ptr<fencing::ArrayRemoval> removal;
  std::unique_ptr<fencing::PodUseCheck> uses;
  std::unique_ptr<FailoverSettingsFile> settings;  // may be null
  std::unique_ptr<LimitsSink> limits;              // in its place
  HeartbeatSink* sink() const {
    return failover != nullptr ? static_cast<HeartbeatSink*>(failover.get()) : limits.get();
  }
  std::unique_ptr<CoordinatorService> coordinator;
};

// On a node.
struct CoordinatorClient {
  std::unique_ptr<Replicas> replicas;
  std::unique_ptr<GrantSource> grants;
  std::unique_ptr<KubeletHealth> kubelet;
  std::unique_ptr<HeartbeatSender> heartbeats;
  std::unique_ptr<StorageHeartbeatSender> storage_heartbeats;
};

// The Lease by which replicas choose the leader, in the controllers' namespace.
constexpr char kLease[] = "lunkeeper-failover";

// For what it writes to the API server, and what it asks of the array that is added back.
constexpr absl::Duration kRemovalTimeout = absl::Seconds(60);
// For an event; where this is not enough, another call follows.
constexpr absl::Duration kTellTimeout = absl::Seconds(5);

// A heartbeat of a node with thousands of volumes. The port is open to strangers.
constexpr int kLongestRequest = 128 << 10;

// The holder's name in the lease, new with each start: a process that restarts on the same host must not take
// the lease of its predecessor for its own, since it does not know what that one has begun.
std::string ThisReplica() { return absl::StrCat(HostName(), "-", RandomHexDigits()); }

// Controllers prove themselves to each other as nodes do to them: by a token of their own account.
absl::Status OpenReplicaPoll(const CoordinatorOptions& options, const FailoverFlags& failover,
                             const std::string& self, CoordinatorServer* server) {
  if (failover.off || options.controller_account.empty()) return absl::OkStatus();
  ReplicaOptions replicas;
  replicas.addresses = options.addresses;
  replicas.server_name = options.server_name;
  replicas.token_file = options.token_file;
  ASSIGN_OR_RETURN(replicas.credentials, TlsClient(options.ca));
  server->controllers = std::make_unique<Authenticator>(
      *server->reviewer, NodeAccount{.audience = options.audience, .account = options.controller_account});
  const auto listen = ParseHostPort(options.listen);
  server->others = std::make_unique<fencing::ReplicaPoll>(
      AskOverGrpc(std::move(replicas), listen ? listen->port : 0), self);
  return absl::OkStatus();
}

// What an operator removed is left out from here on, for everybody above the arrays.
void OpenRemaining(const std::string& space, CoordinatorServer* server) {
  server->remaining = std::make_shared<RemainingArrays>(server->arrays);
  server->arrays = server->remaining;
  server->all_grants = MakeGrantRouter(*server->arrays);
  server->removal_watch =
      std::make_unique<fencing::RemovalWatch>(*server->failover_kubernetes, space, *server->remaining);
}

fencing::Settings OpenSettings(const FailoverFlags& flags, CoordinatorServer* server) {
  if (flags.settings_file.empty()) return flags.settings;
  server->settings = std::make_unique<FailoverSettingsFile>(flags.settings_file, flags.settings);
  return server->settings->ReadFirst();
}

// By the client that nothing of failover waits for.
std::unique_ptr<fencing::PodUseCheck> CheckUsesBy(const CoordinatorServer& server) {
  const auto known = [failover = server.failover.get()](const std::string& machine, const VolumeId& volume) {
    return failover->FindUse(machine, volume);
  };
  return std::make_unique<fencing::PodUseCheck>(known, *server.arrays, *server.kubernetes);
}

absl::Status OpenFailover(const FailoverFlags& flags, kube::KubeConfig config, const std::string& self,
                          CoordinatorServer* server) {
  if (flags.off) {
    // Failover polls the arrays, which is where limits come from; without it something else has to.
    server->limits = std::make_unique<LimitsSink>(*server->arrays);
    return absl::OkStatus();
  }
  const fencing::Settings settings = OpenSettings(flags, server);
  fencing::FailoverOptions options{.settings = settings, .self = self, .lease = {}};
  options.distrust = [authenticator = server->authenticator.get()](const std::string& machine) {
    authenticator->ForgetMachine(machine);
  };
  if (server->others != nullptr)
    options.ask_replicas = [others = server->others.get()](const NodeId& node, auto answered) {
      others->AskAll(node, std::move(answered));
    };
  ASSIGN_OR_RETURN(options.lease.space, kube::InClusterNamespace());
  options.lease.name = kLease;
  server->lease = options.lease;
  config.connections = fencing::kConnections;
  // All connections at once, and kept open by the reads of the lease: when a node dies, its pods are deleted
  // in parallel, and none waits for a TLS handshake.
  config.open_all = true;
  ASSIGN_OR_RETURN(server->failover_kubernetes, kube::MakeKubeClient(config));
  OpenRemaining(options.lease.space, server);
  options.removed_arrays = [remaining = server->remaining.get()] {
    return remaining->ListCertainlyRemoved();
  };
  server->failover = fencing::StartFailover(options, *server->arrays, *server->failover_kubernetes);
  server->removal = std::make_unique<fencing::ArrayRemoval>(*server->remaining, *server->failover,
                                                            *server->kubernetes, options.lease.space);
  server->uses = CheckUsesBy(*server);
  if (server->settings != nullptr)
    server->settings->StartWatching([failover = server->failover.get()](const fencing::Settings& changed) {
      failover->ChangeSettings(changed);
    });
  return absl::OkStatus();
}

void AddReport(const std::shared_ptr<CoordinatorServer>& server, const std::string& self,
               Backends* backends) {
  if (server->failover == nullptr) return;
  backends->failover = [server] { return server->failover->ReportStatus(); };
  const std::string by = absl::StrCat("operator@", HostName());
  backends->tell_gateway = [server, self](const ArrayGateway& gateway) {
    return fencing::TellGateway(*server->kubernetes, server->lease, self, gateway,
                                absl::Now() + kTellTimeout);
  };
  backends->array_removal.remove = [server, by](const std::string& array, bool force) {
    return server->removal->RemoveArray({.array = array, .force = force, .by = by},
                                        absl::Now() + kRemovalTimeout);
  };
  backends->array_removal.list_uses = [server](const std::string& array) {
    return server->failover->ListUses(array);
  };
  backends->array_removal.add = [server](const std::string& array) {
    return server->removal->AddArray(array, absl::Now() + kRemovalTimeout);
  };
  backends->reports.push_back([server](Metrics& metrics) {
    server->failover->ReportMetrics(metrics);
    if (server->settings != nullptr)
      metrics.SetGauge("lunkeeper_failover_settings_good",
                       "Whether the file of failover's settings is in force as it is",
                       server->settings->IsInForce());
  });
}

}  // namespace

absl::Status OpenCoordinator(const CoordinatorOptions& options, const FailoverFlags& failover,
                             size_t most_volumes, Backends* backends) {
  Listener listener;
  listener.max_request_bytes = kLongestRequest;
  listener.address = options.listen;
  ASSIGN_OR_RETURN(listener.credentials, TlsServer(options.certificate, options.key));
  auto server = std::make_shared<CoordinatorServer>();
  server->arrays = backends->arrays;
  server->all_grants = backends->all_grants;
  ASSIGN_OR_RETURN(const kube::KubeConfig config, kube::InClusterConfig());
  ASSIGN_OR_RETURN(server->kubernetes, kube::MakeKubeClient(config));
  server->reviewer = MakeKubeTokenReviewer(*server->kubernetes);
  server->authenticator = std::make_unique<Authenticator>(
      *server->reviewer, NodeAccount{.audience = options.audience, .account = options.account});
  const std::string self = ThisReplica();
  RETURN_IF_ERROR(OpenReplicaPoll(options, failover, self, server.get()));
  // Before the service, which passes heartbeats on to it.
  RETURN_IF_ERROR(OpenFailover(failover, config, self, server.get()));
  server->coordinator =
      MakeCoordinatorService(*server->all_grants, *server->arrays, *server->authenticator, server->sink(),
                             {.most_volumes = most_volumes,
                              .node = {},
                              .controllers = server->controllers.get(),
                              .uses = server->uses.get()});
  listener.service = std::shared_ptr<grpc::Service>(server, server->coordinator->service());
  // On SIGTERM: ends the calls and streams that would otherwise last until --stop-seconds have passed.
  listener.leave = [server] { server->coordinator->SendNodesAway(); };
  // The services above see the arrays and their grants as the coordinator does.
  backends->arrays = server->arrays;
  backends->all_grants = server->all_grants;
  AddReport(server, self, backends);
  backends->certificates.push_back([path = options.certificate] { return std::vector{path}; });
  backends->listeners.push_back(std::move(listener));
  return absl::OkStatus();
}

absl::Status OpenCoordinatorClient(const CoordinatorOptions& options, const std::vector<std::string>& arrays,
                                   NodeView view, Backends* backends) {
  ReplicaOptions replicas;
  replicas.addresses = options.addresses;
  replicas.server_name = options.server_name;
  replicas.token_file = options.token_file;
  ASSIGN_OR_RETURN(replicas.credentials, TlsClient(options.ca));
  auto client = std::make_shared<CoordinatorClient>();
  client->replicas = std::make_unique<Replicas>(replicas);
  client->grants = MakeCoordinatorGrantSource(client->replicas->table(), backends->node);
  client->kubelet =
      WatchKubelet({.healthz = options.kubelet_healthz, .runtime_socket = options.runtime_socket});
  // Heartbeats carry it: a node whose kubelet hangs is another case than one that is dead.
  view.kubelet_ok = [kubelet = client->kubelet.get()] { return kubelet->IsWell(); };
  backends->certificates.push_back([path = options.ca] { return std::vector{path}; });
  backends->peers = options.addresses;
  client->heartbeats = StartHeartbeatSender({.node = backends->node},
                                            SendOverGrpc(*client->replicas, backends->node), std::move(view));
  client->storage_heartbeats = StartStorageHeartbeats(
      {.node = backends->node, .arrays = {arrays.begin(), arrays.end()}, .log_in = LogInByIscsi},
      AskForHeartbeatLun(client->replicas->table(), backends->node),
      [heartbeats = client->heartbeats.get()](const fencing::ArrayId& array,
                                              const fencing::ArrayFence& fence) {
        heartbeats->OnFence(array, fence);
      },
      [heartbeats = client->heartbeats.get()](const fencing::ArrayId& array) {
        heartbeats->OnStorageHeartbeat(array);
      });
  backends->reports.push_back([client](Metrics& metrics) {
    Metrics::Series ages;
    for (const auto& [array, age] : client->storage_heartbeats->Ages())
      ages[{{"array", array.value()}}] = absl::ToDoubleSeconds(age);
    metrics.SetGauge("lunkeeper_node_storage_heartbeat_age_seconds",
                     "Since a heartbeat of this node last landed on the array", ages);
    metrics.SetCounter("lunkeeper_node_forged_fence_notices_total",
                       "Fence notices of an array that were ignored, as they were not signed with its key",
                       {{{}, static_cast<double>(client->storage_heartbeats->ForgedNotices())}});
  });
  backends->grants = std::shared_ptr<GrantSource>(client, client->grants.get());
  return absl::OkStatus();
}

}  // namespace lunkeeper
