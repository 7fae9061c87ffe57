#include "plugin/keeper_wiring.h"

#include <memory>
#include <utility>

#include "fencing/keeper/authenticator.h"
#include "fencing/keeper/keeper_grant_source.h"
#include "fencing/keeper/keeper_service.h"
#include "fencing/keeper/kube_token_reviewer.h"
#include "fencing/keeper/kubelet_health.h"
#include "fencing/keeper/replicas.h"
#include "fencing/keeper/tls.h"
#include "fencing/kube/kube_client.h"
#include "plugin/base/status_macros.h"

namespace lunkeeper {
namespace {

struct KeeperServer {
  std::shared_ptr<Array> array;
  std::unique_ptr<kube::KubeClient> kubernetes;
  std::unique_ptr<TokenReviewer> reviewer;
  std::unique_ptr<Authenticator> authenticator;
  std::unique_ptr<KeeperService> keeper;
};

struct KeeperClient {
  std::unique_ptr<Replicas> replicas;
  std::unique_ptr<GrantSource> grants;
  std::unique_ptr<KubeletHealth> kubelet;
  std::unique_ptr<BeatSender> beats;
};

}  // namespace

absl::Status OpenKeeper(const KeeperOptions& options, Backends* backends) {
  Listener listener;
  listener.address = options.listen;
  ASSIGN_OR_RETURN(listener.credentials, KeeperServerTls(options.certificate, options.key));
  auto server = std::make_shared<KeeperServer>();
  server->array = backends->array;
  ASSIGN_OR_RETURN(const kube::KubeConfig config, kube::InClusterConfig());
  ASSIGN_OR_RETURN(server->kubernetes, kube::MakeKubeClient(config));
  server->reviewer = MakeKubeTokenReviewer(*server->kubernetes);
  server->authenticator = std::make_unique<Authenticator>(
      *server->reviewer, NodeAccount{.audience = options.audience, .account = options.account});
  server->keeper = MakeKeeperService(*server->array, *server->authenticator, /*sink=*/nullptr);
  listener.service = std::shared_ptr<grpc::Service>(server, server->keeper->service());
  listener.leave = [server] { server->keeper->Leave(); };
  backends->listeners.push_back(std::move(listener));
  return absl::OkStatus();
}

absl::Status OpenKeeperClient(const KeeperOptions& options, NodeView view, Backends* backends) {
  ReplicaOptions replicas;
  replicas.addresses = options.addresses;
  replicas.server_name = options.server_name;
  replicas.token_file = options.token_file;
  ASSIGN_OR_RETURN(replicas.credentials, KeeperClientTls(options.ca));
  auto client = std::make_shared<KeeperClient>();
  client->replicas = std::make_unique<Replicas>(replicas);
  client->grants = MakeKeeperGrantSource(*client->replicas, backends->node);
  client->kubelet =
      WatchKubelet({.healthz = options.kubelet_healthz, .runtime_socket = options.runtime_socket});
  view.kubelet_ok = [kubelet = client->kubelet.get()] { return kubelet->Ok(); };
  client->beats = StartBeatSender({.node = backends->node}, *client->replicas, std::move(view));
  backends->grants = std::shared_ptr<GrantSource>(client, client->grants.get());
  return absl::OkStatus();
}

}  // namespace lunkeeper
