#include "plugin/serve.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/driver.h"
#include "base/heap.h"
#include "base/http.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/periodic.h"
#include "base/status_macros.h"
#include "base/tls.h"
#include "controller/controller_service.h"
#include "identity/identity_service.h"
#include "node/array_grant_source.h"
#include "node/node_service.h"
#include "node/registration.h"
#include "plugin/admin_service.h"
#include "plugin/server.h"
#include "plugin/stop_signal.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kSweepEvery = absl::Seconds(5);

// The gRPC services of one process, and what they need to be owned.
class Services {
 public:
  Services(const ServeOptions& options, const Backends& backends)
      : identity_(MakeIdentityService([&backends] { return backends.Ready(); })),
        admin_(MakeAdminService(&backends, options.mode)) {
    if (backends.arrays != nullptr) {
      ControllerOptions controller;
      controller.max_volumes_per_node = static_cast<size_t>(options.max_volumes_per_node);
      controller_ = MakeControllerService(*backends.arrays, controller);
    }
    if (backends.initiator == nullptr) return;
    grants_ = backends.grants;
    if (grants_ == nullptr && backends.all_grants != nullptr)
      grants_ = MakeArrayGrantSource(*backends.all_grants, backends.node);
    NodeServiceOptions node;
    node.node = backends.node;
    node.max_volumes = options.max_volumes_per_node;
    for (const std::string& name : options.array_names) node.topology.insert(ReachableArray(name));
    node_ = std::make_unique<NodeService>(std::move(node), *backends.initiator, *backends.filesystem,
                                          *backends.mounter, grants_.get());
    sweep_ = std::make_unique<Periodic>(kSweepEvery, [this] {
      node_->RemoveForgotten();
      node_->ReturnUnusedGrants();
    });
  }

  std::vector<grpc::Service*> All() const {
    std::vector<grpc::Service*> all = {identity_.get(), admin_.get()};
    if (controller_ != nullptr) all.push_back(controller_.get());
    if (node_ != nullptr) all.push_back(node_.get());
    return all;
  }

 private:
  std::shared_ptr<GrantSource> grants_;
  std::unique_ptr<csi::v1::Identity::Service> identity_;
  std::unique_ptr<admin::v1::Admin::Service> admin_;
  std::unique_ptr<csi::v1::Controller::Service> controller_;
  std::unique_ptr<NodeService> node_;
  std::unique_ptr<Periodic> sweep_;  // last: it uses the others
};

// What the pages say of the backends, from before they are open until after they are closed.
class Readiness {
 public:
  // `registration` may be null.
  void Opened(const Backends* backends, const Registration* registration) {
    registration_ = registration;
    backends_ = backends;
  }
  HttpReply Page() const {
    const Backends* backends = backends_;
    if (backends == nullptr) return {503, "starting, or stopping\n"};
    absl::Status ready = backends->Ready();
    if (registration_ != nullptr) ready.Update(registration_->Status());
    return ready.ok() ? HttpReply{200, "ready\n"} : HttpReply{503, absl::StrCat(ready.message(), "\n")};
  }

 private:
  const Registration* registration_ = nullptr;
  std::atomic<const Backends*> backends_ = nullptr;  // set last
};

absl::StatusOr<std::unique_ptr<HttpServer>> StartPages(const std::string& address, const Metrics& metrics,
                                                       const Readiness& readiness) {
  if (address.empty()) return nullptr;
  return StartHttpServer(address, {{"/metrics",
                                    [&metrics] {
                                      return HttpReply{200, metrics.Text()};
                                    }},
                                   {"/healthz",
                                    [] {
                                      return HttpReply{200, "alive\n"};
                                    }},
                                   {"/readyz", [&readiness] { return readiness.Page(); }}});
}

using Servers = std::vector<std::unique_ptr<Server>>;

// The one on the socket comes first.
absl::StatusOr<Servers> StartServers(const ServeOptions& options, const Backends& backends,
                                     const Services& services, Metrics* metrics) {
  Servers servers;
  ServerOptions on_socket;
  on_socket.endpoint = options.endpoint;
  ASSIGN_OR_RETURN(auto first, Server::Start(on_socket, services.All(), metrics));
  servers.push_back(std::move(first));
  for (const Listener& listener : backends.listeners) {
    ServerOptions on_tcp;
    on_tcp.endpoint = listener.address;
    on_tcp.credentials = listener.credentials;
    ASSIGN_OR_RETURN(auto server, Server::Start(on_tcp, {listener.service.get()}, metrics));
    LogInfo("serve", "listening", {{"address", listener.address}});
    servers.push_back(std::move(server));
  }
  return servers;
}

// False when calls still run at the limit.
bool StopServers(const Servers& servers, const Backends& backends, absl::Duration limit) {
  for (const Listener& listener : backends.listeners) {
    if (listener.leave) listener.leave();
  }
  const absl::Time deadline = absl::Now() + limit;
  bool finished = true;
  for (const auto& server : servers) {
    if (!server->Stop(std::max(deadline - absl::Now(), absl::ZeroDuration()))) finished = false;
  }
  return finished;
}

// So that somebody is told before they end.
void ReportCertificates(const Backends& backends, Metrics& metrics) {
  Metrics::Series ends;
  for (const auto& files : backends.certificates)
    for (const std::string& file : files())
      if (const auto end = CertificateEnds(file); end.ok())
        ends[{{"file", file}}] = static_cast<double>(absl::ToUnixSeconds(*end));
  metrics.Set("lunkeeper_certificate_end_seconds", "Until when a certificate is good, in Unix time", ends);
}

// Null without a kubelet to tell.
std::unique_ptr<Registration> Register(const ServeOptions& options) {
  if (options.registration_dir.empty()) return nullptr;
  return StartRegistration({.directory = options.registration_dir,
                            .driver = kDriverName,
                            .endpoint = SocketPath(options.endpoint).value_or("")});
}

absl::Status Run(const ServeOptions& options, const std::function<absl::StatusOr<Backends>()>& open) {
  StopSignal stop;
  Metrics metrics(options.mode);
  Readiness readiness;
  ASSIGN_OR_RETURN(auto pages, StartPages(options.metrics_address, metrics, readiness));
  ASSIGN_OR_RETURN(const Backends backends, open());
  const Services services(options, backends);
  ASSIGN_OR_RETURN(const Servers servers, StartServers(options, backends, services, &metrics));
  const auto registration = Register(options);
  readiness.Opened(&backends, registration.get());
  LogInfo("serve", "serving",
          {{"mode", options.mode},
           {"endpoint", options.endpoint},
           {"node", backends.node.value()},
           {"version", LUNKEEPER_VERSION}});

  do {
    for (const auto& report : backends.reports) report(metrics);
    ReportCertificates(backends, metrics);
    if (registration != nullptr) {
      metrics.Set("lunkeeper_registered", "Whether kubelet has registered this driver",
                  registration->Status().ok() ? 1 : 0);
    }
  } while (!stop.WaitFor(kSweepEvery));
  LogInfo("serve", "stopping");
  const bool finished = StopServers(servers, backends, absl::Seconds(options.stop_seconds));
  pages.reset();
  if (finished) return absl::OkStatus();
  LogWarn("serve", "calls are still running: they are left as they are, and may be repeated");
  std::_Exit(0);  // waiting for them is what the limit was against
}

}  // namespace

int Serve(const ServeOptions& options, const std::function<absl::StatusOr<Backends>()>& open) {
  LimitHeap();
  SetUpLogging(options.log_level, options.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  const absl::Status status = Run(options, open);
  if (status.ok()) return 0;
  LogError("serve", std::string(status.message()), {{"code", absl::StatusCodeToString(status.code())}});
  return 1;
}

}  // namespace lunkeeper
