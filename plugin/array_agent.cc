// The agent is a server like `lunkeeper serve`, with other backends: no CSI services, and one more on TCP. It
// runs as root on a storage host under systemd, with no orchestrator beside it.
#include "plugin/array_agent.h"

#include <atomic>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/array/remote/array_service.h"
#include "plugin/serve.h"
#include "plugin/wiring.h"

namespace lunkeeper {
namespace {

constexpr char kSocketFolder[] = "/run/lunkeeper";

absl::StatusOr<Backends> OpenAgent(const ArrayAgentOptions& options) {
  // The files first: an error in one is then reported at once, and not after a long recovery.
  ASSIGN_OR_RETURN(auto credentials, MutualTlsServer(options.tls));
  Backends backends;
  ASSIGN_OR_RETURN(const auto host, OpenPool(options.serve, &backends));
  // Set on SIGTERM: requests that wait for a volume are answered UNAVAILABLE, and controllers ask again.
  const auto leaving = std::make_shared<std::atomic<bool>>(false);
  ArrayServiceOptions service;
  service.name = options.serve.array_names.front();
  service.view = [host](const ClusterId& cluster) { return host->ForCluster(cluster); };
  service.serving = backends.array_serving;
  service.leaving = [leaving] { return leaving->load(); };
  backends.certificates.push_back([tls = options.tls] { return std::vector{tls.certificate, tls.ca}; });
  backends.listeners.push_back({options.listen, std::move(credentials), MakeArrayService(std::move(service)),
                                [leaving] { leaving->store(true); }});
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
