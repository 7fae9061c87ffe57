// The agent is a server like `lunkeeper serve`, with other backends: no CSI services, and one more on TCP. It
// runs as root on a storage host under systemd, with no orchestrator beside it.
#include "plugin/array_agent.h"

#include <atomic>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/revoked_certificates.h"
#include "base/status_macros.h"
#include "devices/array/remote/array_service.h"
#include "plugin/cluster_calls.h"
#include "plugin/serve.h"
#include "plugin/wiring.h"

namespace lunkeeper {
namespace {

constexpr char kSocketFolder[] = "/run/lunkeeper";

// Who gets through the handshake has a certificate, and gRPC ends one that takes long. Many controllers may
// come from one address, that of a gateway, and a wrong call of theirs gets its answer each time.
ConnectionLimits ClientLimits() {
  return {.per_address = 512,
          .new_at_once = 512,
          .new_per_second = 64,
          .bytes_known = 16 << 20,
          .time_unknown = absl::InfiniteDuration(),
          .bad_calls = 0};
}

absl::StatusOr<Backends> OpenAgent(const ArrayAgentOptions& options) {
  // The files first: an error in one is then reported at once, and not after a long recovery.
  ASSIGN_OR_RETURN(auto credentials, MutualTlsServer(options.tls));
  std::shared_ptr<RevokedCertificates> revoked;
  if (!options.revoked.empty()) {
    ASSIGN_OR_RETURN(revoked, RevokedCertificates::Open(options.revoked));
  }
  Backends backends;
  ASSIGN_OR_RETURN(const auto host, OpenPool(options.serve, &backends));
  WatchGateways(&backends);
  // Set on SIGTERM: requests that wait for a volume are answered UNAVAILABLE, and controllers ask again.
  const auto leaving = std::make_shared<std::atomic<bool>>(false);
  ArrayServiceOptions service;
  service.name = options.serve.array_names.front();
  const auto calls = std::make_shared<ClusterCalls>();
  service.view = [host, calls](const ClusterId& cluster) {
    calls->NoteCall(cluster);
    return host->ForCluster(cluster);
  };
  backends.reassign = [host, calls](const Reassignment& asked) -> absl::StatusOr<Reassigned> {
    RETURN_IF_ERROR(calls->CheckSilent(asked.from));
    return host->Reassign(asked);
  };
  service.serving = backends.array_serving;
  service.confirm = [host] { return host->ConfirmServing(); };
  service.gateway = [host] { return host->FindGateway(); };
  service.identity = [host] { return host->identity(); };
  service.note_copy = [host](const PoolIdentity& known) { host->NoteCopy(known); };
  if (revoked != nullptr)
    service.check_certificate = [revoked](const std::string& pem) { return revoked->CheckCertificate(pem); };
  service.leaving = [leaving] { return leaving->load(); };
  backends.certificates.push_back([tls = options.tls] { return std::vector{tls.certificate, tls.ca}; });
  backends.listeners.push_back({.address = options.listen,
                                .credentials = std::move(credentials),
                                .service = MakeArrayService(std::move(service)),
                                .leave = [leaving] { leaving->store(true); },
                                .connections = ClientLimits()});
  return backends;
}

}  // namespace

int RunArrayAgent(const ArrayAgentOptions& options) {
  ServeOptions serve = options.serve;
  // For logs and `status`; which services run follows from the backends.
  serve.mode = "array";
  const bool own_folder = serve.endpoint.empty();
  if (own_folder) serve.endpoint = absl::StrCat(kSocketFolder, "/array-", serve.array_names.front(), ".sock");
  return Serve(serve, [&]() -> absl::StatusOr<Backends> {
    if (own_folder) RETURN_IF_ERROR(MakeFolder(kSocketFolder));
    return OpenAgent(options);
  });
}

}  // namespace lunkeeper
