// The life of a server process. All of it is on the main thread; gRPC, the pages and the sweep have others.
//
//   pages     /metrics, /healthz and /readyz answer from here on: alive, not ready
//   backends  opened, which after a crash may take minutes (an array restores its targets first)
//   services  made over the backends; the node's sweep starts
//   servers   listen; the plugin registers with kubelet; /readyz may say ready
//   loop      gauges are set every five seconds, until SIGTERM or SIGINT
//   stop      waiting calls are sent away, and running ones finish within --stop-seconds; then all is
//             destroyed in reverse order
//
// A process that is killed at any point leaves nothing that the next one cannot use: state is in the array's
// catalogue, the kernel's mount table and the data path's process, and never here.
#include "plugin/serve.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/driver.h"
#include "base/heap.h"
#include "base/http.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/periodic.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "base/tls.h"
#include "controller/controller_service.h"
#include "controller/group_service.h"
#include "controller/snapshot_metadata_service.h"
#include "csi-spec/v0_services.h"
#include "identity/identity_service.h"
#include "node/node_service.h"
#include "node/registration.h"
#include "plugin/admin_service.h"
#include "plugin/certificate_report.h"
#include "plugin/server.h"
#include "plugin/stop_signal.h"

namespace lunkeeper {
namespace {

// Between two sweeps, and between two settings of the gauges: a scrape comes every 15 to 60 s.
constexpr absl::Duration kSweepEvery = absl::Seconds(5);
constexpr int kRoundsBetweenTrims = 12;  // a minute
// Longer than kubelet leaves between two calls for a volume that it knows and that no pod has yet.
constexpr absl::Duration kKubeletForgets = absl::Minutes(5);

// Owns the gRPC services of the process, and the sweep that needs one of them.
class Services {
 public:
  Services(const ServeOptions& options, const Backends& backends)
      : options_(options),
        identity_(MakeIdentityService({.ready = [&backends] { return backends.CheckAwaited(); },
                                       .healthy = [&backends] { return backends.CheckNeeded(); }})),
        admin_(MakeAdminService(&backends, options.mode)) {
    if (backends.arrays != nullptr) {
      ControllerOptions controller;
      controller.max_volumes_per_node = static_cast<size_t>(options.max_volumes_per_node);
      controller_ = MakeControllerService(*backends.arrays, controller);
      groups_ = MakeGroupControllerService(*backends.arrays);
      blocks_ = MakeSnapshotMetadataService(*backends.arrays);
    }
    if (backends.initiator != nullptr) MakeNode(backends);
    if (options.ServesCsi(kCsiV0)) MakeV0();
  }

  grpc::Service* admin() const { return admin_.get(); }
  // The others.
  std::vector<grpc::Service*> CsiServices() const {
    std::vector<grpc::Service*> all;
    if (options_.ServesCsi(kCsiV1))
      all = {identity_.get(), controller_.get(), groups_.get(), blocks_.get(), node_.get()};
    for (const auto& service : v0_) all.push_back(service.get());
    std::erase(all, nullptr);  // the services of another mode
    return all;
  }

 private:
  void MakeNode(const Backends& backends) {
    NodeServiceOptions node;
    node.node = backends.node;
    node.max_volumes = options_.max_volumes_per_node;
    node.stages_for_publish = !options_.registration_dir.empty();
    if (node.stages_for_publish) node.idle_period = kKubeletForgets;
    for (const std::string& name : options_.array_names) node.topology.insert(ReachableArray(name));
    node_ = std::make_unique<NodeService>(std::move(node), *backends.initiator, *backends.prober,
                                          *backends.filesystem, *backends.mounter, backends.grants.get());
    sweep_ = std::make_unique<Periodic>(kSweepEvery, [this] {
      node_->RemoveForgotten();
      node_->ReturnUnusedGrants();
    });
  }

  // Translators in front of the services of 1.x, which are there whether that version is served or not.
  void MakeV0() {
    v0_.push_back(MakeIdentityV0(*identity_, options_.v0_name));
    if (controller_ != nullptr) v0_.push_back(MakeControllerV0(*controller_));
    if (node_ == nullptr) return;
    v0_.push_back(MakeNodeV0(
        *node_, [this](auto... arguments) { return node_->UnpublishKeepingTarget(arguments...); }));
  }

  const ServeOptions& options_;
  std::unique_ptr<csi::v1::Identity::Service> identity_;
  std::unique_ptr<admin::v1::Admin::Service> admin_;
  std::unique_ptr<csi::v1::Controller::Service> controller_;
  std::unique_ptr<csi::v1::GroupController::Service> groups_;
  std::unique_ptr<csi::v1::SnapshotMetadata::Service> blocks_;
  std::unique_ptr<NodeService> node_;
  std::vector<std::unique_ptr<grpc::Service>> v0_;
  std::unique_ptr<Periodic> sweep_;  // last: it uses the others
};

// The answers of /healthz and /readyz. Their thread may ask before the backends are open and after they are
// closed, so it sees them through one atomic pointer.
class Probes {
 public:
  explicit Probes(const ServeOptions& options) {
    for (const auto& endpoint : {options.endpoint, options.admin_endpoint})
      if (const auto path = SocketPath(endpoint); path.ok()) sockets_.push_back(*path);
  }
  // `registration` may be null.
  void SetOpened(const Backends* backends, const Registration* registration) {
    registration_ = registration;
    backends_ = backends;
  }
  // Nobody reaches a server again whose socket was deleted, until it starts anew.
  HttpReply AnswerHealth() const {
    for (const auto& socket : sockets_)
      if (std::error_code error; backends_ != nullptr && !std::filesystem::exists(socket, error))
        return {503, absl::StrCat("the socket ", socket, " is gone; a restart makes it anew\n")};
    return {200, "alive\n"};
  }
  HttpReply AnswerReady() const {
    const Backends* backends = backends_;
    if (backends == nullptr) return {503, "starting, standing by, or stopping\n"};
    absl::Status ready = backends->CheckReady();
    if (registration_ != nullptr) ready.Update(registration_->Status());
    return ready.ok() ? HttpReply{200, "ready\n"} : HttpReply{503, absl::StrCat(ready.message(), "\n")};
  }

 private:
  std::vector<std::string> sockets_;
  const Registration* registration_ = nullptr;
  std::atomic<const Backends*> backends_ = nullptr;  // set last
};

// The text of /metrics. Writing it takes milliseconds, so those who ask many times a second share one.
class MetricsPage {
 public:
  explicit MetricsPage(const Metrics& metrics) : metrics_(metrics) {}
  HttpReply AnswerPage() {
    const absl::MutexLock lock(&mutex_);
    const absl::Time now = absl::Now();
    if (now < written_ || now - written_ >= kSharedFor) {
      text_ = metrics_.ToText();
      written_ = now;
    }
    return {200, text_};
  }

 private:
  static constexpr absl::Duration kSharedFor = absl::Milliseconds(100);
  const Metrics& metrics_;
  absl::Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
  absl::Time written_ ABSL_GUARDED_BY(mutex_);
};

using PageServers = std::vector<std::unique_ptr<HttpServer>>;

// Probes on a port of their own, so that a reader of the metrics need not reach the probes.
absl::StatusOr<PageServers> StartPages(const ServeOptions& options, MetricsPage& metrics,
                                       const Probes& probes) {
  HttpPages answers = {{"/healthz", [&probes] { return probes.AnswerHealth(); }},
                       {"/readyz", [&probes] { return probes.AnswerReady(); }}};
  HttpPages figures = {{"/metrics", [&metrics] { return metrics.AnswerPage(); }}};
  if (options.health_address.empty()) figures.merge(answers);
  PageServers servers;
  for (const auto& [address, pages] : {std::pair(options.metrics_address, std::move(figures)),
                                       std::pair(options.health_address, std::move(answers))}) {
    if (address.empty()) continue;
    ASSIGN_OR_RETURN(auto server, StartHttpServer(address, pages));
    servers.push_back(std::move(server));
  }
  return servers;
}

using Servers = std::vector<std::unique_ptr<Server>>;

// On the unix socket, the services of CSI, and the operator's unless that has a socket of its own: who calls
// CSI, such as a sidecar, need not be able to fence. On each TCP port, the one that other machines may call.
absl::StatusOr<Servers> StartServers(const ServeOptions& options, const Backends& backends,
                                     const Services& services, Metrics* metrics) {
  Servers servers;
  ServerOptions on_socket;
  on_socket.endpoint = options.endpoint;
  std::vector<grpc::Service*> csi = services.CsiServices();
  if (options.admin_endpoint.empty()) csi.push_back(services.admin());
  ASSIGN_OR_RETURN(servers.emplace_back(), Server::Start(on_socket, csi, metrics));
  if (!options.admin_endpoint.empty()) {
    on_socket.endpoint = options.admin_endpoint;
    ASSIGN_OR_RETURN(servers.emplace_back(), Server::Start(on_socket, {services.admin()}, metrics));
  }
  for (const Listener& listener : backends.listeners) {
    ServerOptions on_tcp;
    on_tcp.endpoint = listener.address;
    on_tcp.credentials = listener.credentials;
    on_tcp.connections = listener.connections;
    on_tcp.max_request_bytes = listener.max_request_bytes;
    ASSIGN_OR_RETURN(servers.emplace_back(), Server::Start(on_tcp, {listener.service.get()}, metrics));
    LogInfo("serve", "listening", {{"address", listener.address}});
  }
  return servers;
}

// False when calls still run at the limit.
bool StopServers(const Servers& servers, const Backends& backends, absl::Duration limit) {
  for (const Listener& listener : backends.listeners) {
    if (listener.leave) listener.leave();
  }
  // One deadline for all, since the orchestrator's grace period is one, too.
  const SteadyDeadline deadline(limit);
  bool finished = true;
  for (const auto& server : servers) {
    if (!server->Stop(deadline.left())) finished = false;
  }
  return finished;
}

// Null without --registration-dir: a plugin that no kubelet uses.
std::unique_ptr<Registration> RegisterWithKubelet(const ServeOptions& options) {
  if (options.registration_dir.empty()) return nullptr;
  return StartRegistration({.directory = options.registration_dir,
                            .driver = kDriverName,
                            .endpoint = SocketPath(options.endpoint).value_or("")});
}

absl::Status Run(const ServeOptions& options, const std::function<absl::StatusOr<Backends>()>& open) {
  StopSignal stop;
  Metrics metrics(options.mode);
  Probes probes(options);
  MetricsPage figures(metrics);
  ASSIGN_OR_RETURN(PageServers pages, StartPages(options, figures, probes));
  absl::StatusOr<Backends> opened = open();
  if (absl::IsCancelled(opened.status()) && StopAsked()) {
    LogInfo("serve", std::string(opened.status().message()));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Backends backends, std::move(opened));
  for (const auto& source : backends.metric_sources) metrics.AddSource(source);
  const Services services(options, backends);
  ASSIGN_OR_RETURN(const Servers servers, StartServers(options, backends, services, &metrics));
  const auto registration = RegisterWithKubelet(options);
  probes.SetOpened(&backends, registration.get());
  LogInfo("serve", "serving",
          {{"mode", options.mode},
           {"endpoint", options.endpoint},
           {"node", backends.node.value()},
           {"version", LUNKEEPER_VERSION}});

  CertificateReport certificates;
  int rounds = 0;
  do {
    if (++rounds % kRoundsBetweenTrims == 0) TrimHeap();
    for (const auto& report : backends.reports) report(metrics);
    certificates.ReportEnds(backends.certificates, absl::Now(), metrics);
    if (registration != nullptr) {
      metrics.SetGauge("lunkeeper_registered", "Whether kubelet has registered this driver",
                       registration->Status().ok() ? 1 : 0);
    }
  } while (!stop.WaitFor(kSweepEvery));
  LogInfo("serve", "stopping");
  const bool finished = StopServers(servers, backends, absl::Seconds(options.stop_seconds));
  pages.clear();
  if (finished) return absl::OkStatus();
  LogWarn("serve", "calls are still running: they are left as they are, and may be repeated");
  // Returning would run destructors, which wait for these calls without a limit. It is safe to leave them as
  // a crash would: each may be repeated.
  std::_Exit(0);
}

// Some container runtimes give 1,024 descriptors unless more are asked for, and a controller has two for each
// node.
void RaiseDescriptorLimit() {
  constexpr rlim_t kWanted = 65'536;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kWanted) return;
  limit.rlim_cur = std::min(kWanted, limit.rlim_max);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) LogWarn("serve", "the limit of descriptors stays as it is");
}

}  // namespace

int Serve(const ServeOptions& options, const std::function<absl::StatusOr<Backends>()>& open) {
  LimitHeap();
  SetUpLogging(options.log_level, options.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  RaiseDescriptorLimit();
  const absl::Status status = Run(options, open);
  if (status.ok()) return 0;
  LogError("serve", std::string(status.message()), {{"code", absl::StatusCodeToString(status.code())}});
  return 1;
}

}  // namespace lunkeeper
