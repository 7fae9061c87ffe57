// The composition root of `lunkeeper serve`. By mode:
//
//   controller  arrays, one of its own in a pool or several behind agents; the coordinator, with failover
//   node        an initiator, file systems and mounts; grants and heartbeats by the controllers' coordinator
//   all         both, in one process
//
// The order matters in one place: the coordinator's client needs the node's id and an initiator.
#include "plugin/wiring.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/periodic.h"
#include "base/status_macros.h"
#include "devices/array/array_router.h"
#include "devices/datapath/datapath.h"
#include "devices/datapath/duplicate_store.h"
#include "devices/datapath/user_initiator.h"
#include "devices/filesystem/linux_mounter.h"
#include "devices/filesystem/tool_filesystem.h"
#include "node/array_grant_source.h"
#include "node/closed_volumes.h"
#include "node/stored_node_id.h"
#include "node/volume_health.h"
#include "plugin/arrays_config.h"
#include "plugin/coordinator_wiring.h"
#include "plugin/stop_signal.h"
#include "plugin/volume_metrics.h"

namespace lunkeeper {
namespace {

// A data path that starts restores its volumes first.
constexpr absl::Duration kDatapathStart = absl::Seconds(20);
constexpr absl::Duration kLookAfterDatapath = absl::Seconds(1);
constexpr absl::Duration kProbeTimeout = absl::Seconds(1);
constexpr absl::Duration kLookForStandbys = absl::Seconds(10);

absl::Status OpenArray(ServeOptions options, Backends* backends) {
  options.ceph.confirms_calls = true;  // no agent does it
  ASSIGN_OR_RETURN(const auto pool, OpenPool(options, backends));
  const ClusterId own(options.cluster);
  std::shared_ptr<Array> array = pool->ForCluster(own);
  backends->reassign = [pool, own](const Reassignment& asked) -> absl::StatusOr<Reassigned> {
    if (asked.from != own) return pool->Reassign(asked);
    return absl::FailedPreconditionError(absl::StrCat("this process serves cluster ", own.value(),
                                                      ", so it lives: start it with the other --cluster"));
  };
  backends->all_grants = std::shared_ptr<GrantStore>(array, &array->grants());
  backends->arrays = MakeOneArray(options.array_names.front(), std::move(array));
  return absl::OkStatus();
}

absl::Status OpenRemoteArrays(const ServeOptions& options, Backends* backends) {
  // A wrong file is an error at the start alone; later it leaves the arrays as they were.
  ASSIGN_OR_RETURN(std::shared_ptr<ArraysFile> file, OpenArraysFile(options.arrays_file));
  backends->all_grants = MakeGrantRouter(*file);
  backends->array_serving = [file] { return file->CheckServing(); };
  backends->ask_gateways = [file] { return file->AskGateways(); };
  backends->reports.push_back([file](Metrics& metrics) {
    metrics.SetGauge("lunkeeper_arrays_file_good", "Whether the arrays file is in force as it is",
                     file->IsInForce() ? 1 : 0);
  });
  backends->certificates.push_back([file] { return file->ListCertificates(); });
  backends->arrays = std::move(file);
  return absl::OkStatus();
}

using ListDevices = std::function<absl::StatusOr<std::vector<Device>>()>;

// The thread that looks after the node asks, and no other.
decltype(NodeView::closed) WatchClosed(const std::string& growth_folder) {
  struct Watch {
    std::unique_ptr<Mounter> mounter = MakeLinuxMounter();
    std::unique_ptr<Filesystem> filesystem;
    ClosedVolumes volumes{*mounter, *filesystem};
  };
  const auto watch = std::shared_ptr<Watch>(new Watch{.filesystem = MakeToolFilesystem(growth_folder)});
  return [watch](const std::vector<Device>& devices) {
    const auto closed = watch->volumes.ListVolumes(devices);
    return fencing::VolumeSet(closed.begin(), closed.end());
  };
}

// The kernel counts what it has sent to the device and what is not answered.
bool IsIdle(const Device& device) {
  const std::string name = std::filesystem::path(device.path).filename();
  std::ifstream file(absl::StrCat("/sys/class/block/", name, "/inflight"));
  uint64_t reads = 0, writes = 0;
  return file >> reads >> writes && reads + writes == 0;
}

// The one place that chooses the source of grants: the controllers if they have an address, else the array in
// this process, else nobody, and then a publish_context has to bring them. What changes later of a grant, its
// end and its limits, comes the same way.
absl::Status OpenGrants(const ServeOptions& options, const ListDevices& list, Backends* backends) {
  // Within about a second, as the other calls of the threads that look after a node: one that hangs in the
  // data path must not hold up a heartbeat.
  const auto set_limits = [prober = backends->prober](const VolumeId& volume, const VolumeLimits& limits) {
    return prober->SetLimits(volume, limits);
  };
  if (!options.coordinator.addresses.empty()) {
    NodeView view;
    view.devices = list;
    view.set_limits = set_limits;
    view.is_idle = IsIdle;
    view.closed = WatchClosed(absl::StrCat(options.state_dir, "/growths"));
    view.mounts = [mounter = std::shared_ptr<Mounter>(MakeLinuxMounter())](const auto& devices) {
      return ListMountTargets(devices, *mounter);
    };
    view.fail = [prober = backends->prober](const Device& device, const std::string& why) {
      return prober->Fail(device.volume, device.target, why);
    };
    return OpenCoordinatorClient(options.coordinator, options.array_names, std::move(view), backends);
  }
  if (backends->all_grants == nullptr) return absl::OkStatus();
  backends->grants = MakeArrayGrantSource(*backends->all_grants, backends->node);
  backends->limits = std::make_unique<LimitWatch>(*backends->all_grants, backends->node, list, set_limits);
  return absl::OkStatus();
}

// A process of its own, outside this one's limits: volumes must outlive an upgrade of the plugin. One that is
// killed is followed by the next; one that somebody stopped is not.
absl::Status KeepDatapathRunning(const ServeOptions& options, Backends* backends) {
  DatapathOptions datapath;
  datapath.socket = options.datapath_socket;
  RETURN_IF_ERROR(StartDatapathIfAbsent(datapath, kDatapathStart));
  backends->datapath_starter = std::make_unique<Periodic>(kLookAfterDatapath, [datapath] {
    if (!IsDatapathKilled(datapath.socket)) return;
    LogWarn("datapath", "the data path was killed, and the next one is started");
    const absl::Status started = StartDatapathIfAbsent(datapath, kDatapathStart);
    if (!started.ok()) LogError("datapath", "no data path", {{"error", std::string(started.message())}});
  });
  return absl::OkStatus();
}

absl::Status OpenNode(const ServeOptions& options, Backends* backends) {
  RETURN_IF_ERROR(MakeFolder(options.state_dir));
  ASSIGN_OR_RETURN(backends->node, LoadNodeId(options.node_name, options.state_dir));
  if (options.start_datapath) RETURN_IF_ERROR(KeepDatapathRunning(options, backends));
  backends->duplicates = StartDuplicateStore(options.datapath_socket);
  backends->initiator = MakeUserInitiator(options.datapath_socket);
  backends->prober = MakeUserInitiator(options.datapath_socket, kProbeTimeout);
  // With a short timeout: readiness and heartbeats must answer within a second, even while the data path is
  // busy with a stage. And they must tell that a data path is dead.
  const auto list = [path = options.datapath_socket] { return ListServedDevices(path, kProbeTimeout); };
  backends->list_statistics = [path = options.datapath_socket] {
    return ListServedDevices(path, kProbeTimeout, /*statistics=*/true);
  };
  backends->metric_sources.push_back(
      [list_statistics = backends->list_statistics] { return WriteVolumeMetrics(list_statistics()); });
  backends->devices_serving = [list] { return list().status(); };
  RETURN_IF_ERROR(OpenGrants(options, list, backends));
  backends->filesystem = MakeToolFilesystem(absl::StrCat(options.state_dir, "/growths"));
  backends->mounter = MakeLinuxMounter();
  return absl::OkStatus();
}

void ReportPool(TgtArray& pool, const std::string& name, Metrics& metrics) {
  const auto orphans = pool.ListOrphans();
  if (orphans.ok())
    metrics.SetGauge("lunkeeper_array_orphans",
                     "Files in the pool's orphans folder, which the catalogue does not know",
                     static_cast<double>(orphans->size()));
  const auto use = pool.MeasureUse();
  if (!use.ok()) return;
  const auto set = [&](const char* gauge, const char* help, uint64_t number) {
    metrics.SetGauge(gauge, help, {{{{"array", name}}, static_cast<double>(number)}});
  };
  set("lunkeeper_array_volumes", "Volumes of all clusters", use->volumes);
  set("lunkeeper_array_snapshots", "Snapshots of all clusters", use->snapshots);
  set("lunkeeper_pool_size_bytes", "Size of the pool's file system", use->total_bytes);
  set("lunkeeper_pool_used_bytes", "What of it is used or reserved", use->used_bytes);
  uint64_t promised = 0;
  Metrics::Series by_cluster;
  for (const auto& [cluster, bytes] : use->promised_bytes) {
    promised += bytes;
    by_cluster[{{"array", name}, {"cluster", cluster.value()}}] = static_cast<double>(bytes);
  }
  set("lunkeeper_pool_promised_bytes", "Sizes of all volumes and snapshots together", promised);
  metrics.SetGauge("lunkeeper_cluster_promised_bytes",
                   "Sizes of this cluster's volumes and snapshots together", by_cluster);
}

void ReportGrants(TgtArray& pool, const std::string& name, Metrics& metrics) {
  const auto set = [&](const char* gauge, const char* help, double value) {
    metrics.SetGauge(gauge, help, {{{{"array", name}}, value}});
  };
  Metrics::Series well;
  for (const absl::Status& status : pool.CheckEachTgtd())
    well[{{"array", name}, {"tgtd", absl::StrCat(well.size())}}] = status.ok() ? 1 : 0;
  metrics.SetGauge("lunkeeper_tgtd_well", "Whether this tgtd runs and answers", well);
  const auto use = pool.MeasureGrants();
  if (!use.ok()) return;
  metrics.SetCounter("lunkeeper_tgtd_deaths_total", "How often tgtd died since the agent began",
                     {{{{"array", name}}, static_cast<double>(use->tgtd_deaths)}});
  metrics.SetCounter("lunkeeper_array_refused_logins_total",
                     "iSCSI logins with a wrong secret or account since the agent began",
                     {{{{"array", name}}, static_cast<double>(use->refused_logins)}});
  metrics.SetCounter("lunkeeper_array_ended_connections_total",
                     "Connections to the portals that were ended, since an address had too many",
                     {{{{"array", name}}, static_cast<double>(use->ended_connections)}});
  uint64_t all_grants = 0;
  Metrics::Series of_tgtds;
  for (const uint64_t grants : use->grants_of_tgtds) {
    all_grants += grants;
    of_tgtds[{{"array", name}, {"tgtd", absl::StrCat(of_tgtds.size())}}] = static_cast<double>(grants);
  }
  set("lunkeeper_array_grants", "Grants of all clusters", static_cast<double>(all_grants));
  metrics.SetGauge("lunkeeper_tgtd_grants", "Grants whose targets this tgtd has", of_tgtds);
  // While that is not known it stays as it was, and lunkeeper_tgtd_well says why.
  if (use->sessions)
    set("lunkeeper_array_sessions", "iSCSI sessions of the grants' nodes",
        static_cast<double>(*use->sessions));
  set("lunkeeper_array_grants_releasing", "Grants whose nodes' commands are not over",
      static_cast<double>(use->releasing));
  set("lunkeeper_array_oldest_release_seconds", "How long the oldest of them has been so",
      absl::ToDoubleSeconds(use->oldest_release));
}

// Whether another gateway could take the array. It looks beside all else, for seconds where there is none,
// but keeps no agent that is to stop.
class StandbyWatch {
 public:
  explicit StandbyWatch(std::shared_ptr<TgtArray> pool)
      : pool_(std::move(pool)), looks_(kLookForStandbys, [this] { FindStandbys(); }) {}
  ~StandbyWatch() { leaving_ = true; }
  StandbyWatch(const StandbyWatch&) = delete;
  StandbyWatch& operator=(const StandbyWatch&) = delete;
  void ReportMetrics(const std::string& array, Metrics& metrics) const {
    const Sight sight = seen_;
    if (sight == Sight::kUnknown) return;
    metrics.SetGauge("lunkeeper_array_has_standby", "Whether another gateway stands by for the array",
                     {{{{"array", array}}, sight == Sight::kThere ? 1.0 : 0.0}});
  }

 private:
  enum class Sight { kUnknown, kNone, kThere };
  void FindStandbys() {
    const auto hosts = pool_->ListStandbys([this] { return leaving_.load(); });
    if (hosts.ok()) seen_ = hosts->empty() ? Sight::kNone : Sight::kThere;
  }
  const std::shared_ptr<TgtArray> pool_;
  std::atomic<Sight> seen_ = Sight::kUnknown;
  std::atomic<bool> leaving_ = false;
  Periodic looks_;  // last: its thread uses the others
};

}  // namespace

absl::Status MakeFolder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("make the folder ", path));
}

absl::StatusOr<std::shared_ptr<TgtArray>> OpenPool(const ServeOptions& options, Backends* backends) {
  RETURN_IF_ERROR(MakeFolder(options.state_dir));
  TgtArrayOptions array;
  array.name = options.array_names.front();
  array.pool_dir = options.pool;
  array.ceph = options.ceph;
  array.ceph.stands_by = [] { return !StopAsked(); };
  for (const std::string& portal : options.portals)  // each once
    if (std::ranges::find(array.portals, portal) == array.portals.end()) array.portals.push_back(portal);
  array.peer_portals = options.peer_portals;
  array.limits = options.limits;
  array.control_port = options.tgt_control_port;
  array.tgtd_io_threads = options.tgtd_io_threads;
  array.tgtds = options.tgtds;
  array.seen_sequence_path =
      absl::StrCat(options.state_dir, "/array-", options.array_names.front(), ".sequence");
  array.mount_path = absl::StrCat(options.state_dir, "/array-", options.array_names.front(), ".mount");
  array.tgtd_output_path = absl::StrCat(options.state_dir, "/array-", options.array_names.front(), ".tgtd");
  array.drain_timeout = absl::Seconds(options.drain_seconds);
  ASSIGN_OR_RETURN(std::shared_ptr<TgtArray> pool, OpenTgtArray(array));
  backends->array_serving = [pool] { return pool->CheckTgtd(); };
  backends->accept_restore = [pool] { return pool->AcceptRestore(); };
  backends->list_orphans = [pool] { return pool->ListOrphans(); };
  backends->delete_orphan = [pool](const std::string& name) { return pool->DeleteOrphan(name); };
  backends->back_up = [pool](const std::string& folder, const BackupWatch& watch) {
    return pool->BackUp(folder, watch);
  };
  backends->hand_over = [pool](const HandoverWatch& watch) { return pool->HandOver(watch); };
  if (!array.ceph.pool.empty()) {
    backends->ask_gateways = [pool, name = array.name]() -> std::vector<ArrayGateway> {
      const auto state = pool->FindGateway();
      return state ? std::vector{ArrayGateway{name, *state}} : std::vector<ArrayGateway>();
    };
  }
  if (!array.ceph.pool.empty() && !array.peer_portals.empty()) {
    backends->reports.push_back([standbys = std::make_shared<StandbyWatch>(pool), name = array.name](
                                    Metrics& metrics) { standbys->ReportMetrics(name, metrics); });
  }
  backends->reports.push_back(
      [pool, name = array.name](Metrics& metrics) { ReportPool(*pool, name, metrics); });
  backends->reports.push_back(
      [pool, name = array.name](Metrics& metrics) { ReportGrants(*pool, name, metrics); });
  backends->owner = pool;
  return pool;
}

void WatchGateways(Backends* backends) {
  if (!backends->ask_gateways) return;
  backends->gateways = std::make_shared<GatewayWatch>(backends->ask_gateways, backends->tell_gateway);
  backends->reports.push_back(
      [watch = backends->gateways](Metrics& metrics) { watch->ReportMetrics(metrics); });
}

absl::StatusOr<Backends> OpenBackends(const ServeOptions& options) {
  Backends backends;
  if (options.HasController()) {
    RETURN_IF_ERROR(options.arrays_file.empty() ? OpenArray(options, &backends)
                                                : OpenRemoteArrays(options, &backends));
    if (!options.coordinator.listen.empty())
      RETURN_IF_ERROR(OpenCoordinator(options.coordinator, options.failover,
                                      static_cast<size_t>(options.max_volumes_per_node), &backends));
    WatchGateways(&backends);
  }
  if (options.HasNode()) RETURN_IF_ERROR(OpenNode(options, &backends));
  return backends;
}

}  // namespace lunkeeper
