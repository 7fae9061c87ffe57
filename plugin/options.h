#pragma once
// The command lines of `lunkeeper serve` and `lunkeeper array`. Every option is checked while it is parsed;
// the error for a wrong one says what is wanted.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/driver.h"
#include "base/tls.h"
#include "devices/array/tgt/ceph_options.h"
#include "devices/array/tgt/pool_room.h"
#include "fencing/core/settings.h"

namespace CLI {
class App;
}

namespace lunkeeper {

// The coordinator's service in a controller, and the address of that service for a node.
struct CoordinatorOptions {
  std::string listen;  // host:port; empty: no service
  std::string certificate;
  std::string key;
  std::string audience = kDriverName;
  std::string account;             // of the node plugin
  std::string controller_account;  // of the controllers; empty: they do not ask each other

  std::vector<std::string> addresses;  // empty: the node has no coordinator
  std::string server_name;
  std::string ca;
  std::string token_file;
  std::string kubelet_healthz;  // host:port; empty: kubelet's health is not watched
  std::string runtime_socket;   // the container runtime's; empty likewise
};

// Failover, in a controller that serves the coordinator.
struct FailoverFlags {
  bool off = false;
  fencing::Settings settings;
  std::string settings_file;  // that changes them at run time; empty: none
};

// Versions of CSI, as --csi-versions names them.
inline constexpr char kCsiV1[] = "1";
inline constexpr char kCsiV0[] = "0.3";

struct ServeOptions {
  std::string mode;  // controller, node or all
  std::string endpoint;
  std::vector<std::string> csi_versions = {kCsiV1, kCsiV0};
  std::string v0_name = kDriverNameV0;
  std::string admin_endpoint;  // of the operator's commands; empty: `endpoint` serves them too
  std::string state_dir = "/var/lib/lunkeeper";
  // The array it has itself; or, of a node, those it reaches.
  std::vector<std::string> array_names = {"array"};
  int max_volumes_per_node = 200;

  // With the Controller service: arrays elsewhere, or one of its own in `pool`.
  std::string arrays_file;
  std::string cluster = "default";
  std::string pool;
  CephOptions ceph;  // its pool empty: volumes are files in `pool`
  std::vector<std::string> portals;
  std::vector<std::string> peer_portals;  // of the array's other hosts
  int tgt_control_port = 1;
  int tgtds = 1;
  PoolLimits limits;
  int tgtd_io_threads = 0;  // 0: by the host's processors
  int drain_seconds = 30;

  // With the Node service.
  std::string node_name;
  std::string datapath_socket = "/run/lunkeeper/datapath.sock";
  bool start_datapath = false;
  std::string registration_dir;  // empty: kubelet is not told

  CoordinatorOptions coordinator;
  FailoverFlags failover;

  std::string metrics_address;  // empty: none
  std::string health_address;   // empty: with the metrics
  int stop_seconds = 20;
  std::string log_level = "info";
  std::string log_format = "text";

  bool ServesCsi(const std::string& version) const {
    return std::find(csi_versions.begin(), csi_versions.end(), version) != csi_versions.end();
  }
  bool HasController() const { return mode != "node"; }
  bool HasNode() const { return mode != "controller"; }
};

// `lunkeeper array`.
struct ArrayAgentOptions {
  ServeOptions serve;  // its array, pages, logs and socket
  std::string listen;
  TlsFiles tls;
  std::string revoked;  // the file with the certificates that are refused; empty: none
};

// The options every server has, the fake one too: its socket, limits, logs and pages.
void AddServerOptions(CLI::App* command, ServeOptions* options);
// Those, the mode, and what the real array and the real devices need.
void AddServeOptions(CLI::App* command, ServeOptions* options);
void AddArrayOptions(CLI::App* command, ArrayAgentOptions* options);
// INVALID_ARGUMENT: an option that this mode needs is missing. Only `serve` needs them all.
absl::Status CheckComplete(const ServeOptions& options);
// `--endpoint`, for servers and for the operator's commands, with the environment variable that gives it too.
void AddEndpointOption(CLI::App* command, std::string* endpoint, const char* variable = "CSI_ENDPOINT");

}  // namespace lunkeeper
