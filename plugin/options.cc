// Options in groups, one function each, so that two commands can share a group: `serve`, `array`, and the
// fake server of the tests. Each option is checked by itself while it is parsed; what options require of each
// other is checked by CheckComplete, once all are known. Help texts say what an operator decides, and
// capture_default_str puts the default into `--help`, from the one place where it is defined.
#include "plugin/options.h"

#include <arpa/inet.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/host_port.h"
#include "devices/array/tgt/tgtd_lock.h"
#include "plugin/failover_options.h"
#include "plugin/option_checks.h"
#include "plugin/server.h"
#include "plugin/store_options.h"

namespace lunkeeper {
namespace {

// A check as CLI11 wants it: returns what is wrong, or an empty text.
using Check = std::function<std::string(const std::string&)>;

std::string IsAddress(const std::string& value) {
  return ParseHostPort(value) ? "" : absl::StrCat("\"", value, "\": want address:port");
}

// For an address that others compare: [10.0.0.5]:3260 becomes 10.0.0.5:3260, and a v6 address its
// shortest form. The chart puts brackets around a node's address, since it may be a v6 one. What is no
// address stays as it is, and is refused afterwards.
std::string ToPlainAddress(const std::string& value) {
  auto address = ParseHostPort(value);
  in6_addr number{};
  char shortest[INET6_ADDRSTRLEN];
  if (address && ::inet_pton(AF_INET6, address->host.c_str(), &number) == 1)
    address->host = ::inet_ntop(AF_INET6, &number, shortest, sizeof shortest);
  return address ? FormatHostPort(*address) : value;
}

// The server's own rule, so that the two cannot differ.
std::string IsEndpoint(const std::string& value) { return std::string(SocketPath(value).status().message()); }

// Metrics, logs and the end: the same for every server.
void AddProcessOptions(CLI::App* command, ServeOptions* options) {
  command
      ->add_option("--metrics-address", options->metrics_address,
                   "host:port of /metrics; if not given, it is not served")
      ->transform(ToPlainAddress)
      ->check(Check(IsAddress));
  command
      ->add_option("--health-address", options->health_address,
                   "host:port of /healthz and /readyz; if not given, --metrics-address serves them")
      ->check(Check(IsAddress));
  command
      ->add_option("--stop-seconds", options->stop_seconds, "How long running calls may take after SIGTERM")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  command->add_option("--log-level", options->log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
  command->add_option("--log-format", options->log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

// Where nodes reach an array on this machine.
void AddPortalOptions(CLI::App* command, ServeOptions* options) {
  command
      ->add_option("--portal", options->portals,
                   "address:port where nodes reach the array's targets. Once for each network: a node whose "
                   "way to one is cut uses another. iSCSI is not encrypted: only nodes and storage hosts "
                   "should reach it")
      ->allow_extra_args(false)
      ->transform(ToPlainAddress)
      ->check(Check(IsAddress));
  command
      ->add_option("--peer-portal", options->peer_portals,
                   "address:port of another host of this array, where nodes go on when that one serves it: "
                   "another gateway of --store=rbd, or a host that gets the pool's disks")
      ->allow_extra_args(false)
      ->transform(ToPlainAddress)
      ->check(Check(IsAddress));
}

// Of an array on this machine, served by tgt.
void AddPoolOptions(CLI::App* command, ServeOptions* options) {
  AddStoreOptions(command, &options->ceph);
  command->add_option("--pool", options->pool, "The array's directory; on XFS or btrfs for reflink snapshots")
      ->check(Check(IsAbsolutePath));
  AddPortalOptions(command, options);
  command
      ->add_option("--tgt-control-port", options->tgt_control_port,
                   "Number of tgtd's management socket; each array of a host needs its own")
      ->check(CLI::Range(0, 32767))
      ->capture_default_str();
  command
      ->add_option("--tgtds", options->tgtds,
                   "How many tgtds serve the array, one for each 200 grants; each further one takes the next "
                   "port of every --portal and the next --tgt-control-port")
      ->check(CLI::Range(1, kMostTgtds))
      ->capture_default_str();
  command
      ->add_option(
          "--tgtd-io-threads", options->tgtd_io_threads,
          "Commands of one volume that tgtd runs in parallel; takes effect when tgtd starts. 0: half "
          "as many as the host has processors, 1 to 4")
      ->check(CLI::Range(0, 16))
      ->capture_default_str();
  AddLimitOptions(command, &options->limits);
  command
      ->add_option("--drain-seconds", options->drain_seconds,
                   "How long a release or a fence waits for a node's commands to end")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
}

// Of a controller.
void AddCoordinatorServerOptions(CLI::App* command, CoordinatorOptions* options) {
  command
      ->add_option(
          "--coordinator-listen", options->listen,
          "address:port where nodes ask for grants; if not given, only ControllerPublish makes grants")
      ->check(Check(IsAddress));
  command->add_option("--coordinator-cert", options->certificate, "The coordinator's certificate, PEM")
      ->check(Check(IsAbsolutePath));
  command->add_option("--coordinator-key", options->key, "Its key, PEM")->check(Check(IsAbsolutePath));
  command
      ->add_option("--coordinator-audience", options->audience, "The audience that nodes' tokens must have")
      ->capture_default_str();
  command->add_option("--coordinator-account", options->account,
                      "The node plugin's service account, as system:serviceaccount:NAMESPACE:NAME");
  command->add_option("--controller-account", options->controller_account,
                      "The controllers' service account. With --coordinator-address, --coordinator-ca and "
                      "--token-file controllers ask each other whether they hear a node, before one is "
                      "fenced on evidence");
}

// Of a node.
void AddCoordinatorClientOptions(CLI::App* command, CoordinatorOptions* options) {
  command
      ->add_option(
          "--coordinator-address", options->addresses,
          "host:port of the controllers' coordinator; a name may resolve to several controllers. May "
          "be repeated")
      ->allow_extra_args(false)
      ->check(Check(IsAddress));
  command->add_option("--coordinator-server-name", options->server_name,
                      "The name in the coordinator's certificate, if it is not its address's host");
  command->add_option("--coordinator-ca", options->ca, "The CA of the coordinator's certificate, PEM")
      ->check(Check(IsAbsolutePath));
  command->add_option("--token-file", options->token_file, "The node's service account token")
      ->check(Check(IsAbsolutePath));
  command
      ->add_option(
          "--kubelet-healthz", options->kubelet_healthz,
          "number:port of kubelet's /healthz on this machine; if not given, this node does not notice a "
          "kubelet that hangs")
      ->check(Check(IsAddress));
  command
      ->add_option(
          "--runtime-socket", options->runtime_socket,
          "The container runtime's CRI socket; if not given, this node does not notice a runtime that hangs")
      ->check(Check(IsAbsolutePath));
}

// LUNKEEPER_LOG_LEVEL for --log-level. CSI, "General Configuration": what is no secret can come from the
// environment. (No option is a secret; some name a file with one.)
void AddVariables(CLI::App* command) {
  for (CLI::Option* option : command->get_options()) {
    const std::string name = option->get_name();
    // Some have a variable of another name, which CSI or the chart has chosen.
    if (name == "--help" || !option->get_envname().empty()) continue;
    option->envname(
        absl::StrCat("LUNKEEPER_", absl::AsciiStrToUpper(absl::StrReplaceAll(name.substr(2), {{"-", "_"}}))));
  }
}

// CSI 0.3, "GetPluginInfo": as a reversed domain name.
std::string IsReverseDomainName(const std::string& value) {
  const auto alphanumeric = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); };
  const bool plain = std::all_of(value.begin(), value.end(),
                                 [&](char c) { return alphanumeric(c) || c == '-' || c == '_' || c == '.'; });
  if (plain && !value.empty() && value.size() <= 63 && alphanumeric(value.front()) &&
      alphanumeric(value.back()))
    return "";
  return absl::StrCat("\"", value, "\": want a name such as ", kDriverNameV0,
                      ": at most 63 letters, digits, - _ and ., with a letter or digit at both ends");
}

void AddCsiOptions(CLI::App* command, ServeOptions* options) {
  command
      ->add_option("--csi-versions", options->csi_versions,
                   "Versions of CSI to serve: 1 (1.13 and before), 0.3 (and 0.2), or both. Calls of another "
                   "one are answered UNIMPLEMENTED")
      ->delimiter(',')
      ->check(CLI::IsMember({kCsiV1, kCsiV0}))
      ->capture_default_str();
  command
      ->add_option(
          "--csi-v0-name", options->v0_name,
          "The driver's name in CSI 0.3, in reverse-domain form; in 1.x it is " + std::string(kDriverName))
      ->check(Check(IsReverseDomainName))
      ->capture_default_str();
}

absl::Status CheckCoordinator(const ServeOptions& options) {
  const CoordinatorOptions& coordinator = options.coordinator;
  if (!coordinator.listen.empty() && (!options.HasController() || coordinator.certificate.empty() ||
                                      coordinator.key.empty() || coordinator.account.empty())) {
    return absl::InvalidArgumentError(
        "--coordinator-listen goes with a controller, --coordinator-cert, --coordinator-key and "
        "--coordinator-account");
  }
  const bool asks = options.mode == "controller" && !coordinator.controller_account.empty();
  if (!coordinator.addresses.empty() &&
      ((options.HasController() && !asks) || coordinator.ca.empty() || coordinator.token_file.empty())) {
    return absl::InvalidArgumentError(
        "--coordinator-address goes with --coordinator-ca and --token-file, and with --mode=node or with a "
        "controller's --controller-account");
  }
  if (!coordinator.controller_account.empty() && (!asks || coordinator.addresses.empty())) {
    return absl::InvalidArgumentError(
        "--controller-account goes with --mode=controller and --coordinator-address");
  }
  if (!options.registration_dir.empty() && !options.HasNode()) {
    return absl::InvalidArgumentError("--registration-dir goes with --mode=node and --mode=all");
  }
  if (!options.registration_dir.empty() && !options.ServesCsi(kCsiV1)) {
    return absl::InvalidArgumentError("--registration-dir goes with --csi-versions=1: kubelet speaks no 0.3");
  }
  return absl::OkStatus();
}

}  // namespace

void AddEndpointOption(CLI::App* command, std::string* endpoint, const char* variable) {
  command->add_option("--endpoint", *endpoint, "The server's socket, unix:///path")
      ->envname(variable)
      ->required()
      ->check(Check(IsEndpoint));
}

void AddServerOptions(CLI::App* command, ServeOptions* options) {
  AddEndpointOption(command, &options->endpoint);
  AddCsiOptions(command, options);
  command
      ->add_option("--admin-endpoint", options->admin_endpoint,
                   "A socket of its own for `lunkeeper status`, `fence` and the like, which --endpoint then "
                   "does not serve")
      ->check(Check(IsEndpoint));
  command
      ->add_option(
          "--array-name", options->array_names,
          "The array's name, which can never change; for a node, once for each array that it reaches")
      ->allow_extra_args(false)
      ->check(Check(PlainName(32)))
      ->capture_default_str();
  command
      ->add_option("--max-volumes-per-node", options->max_volumes_per_node,
                   "How many volumes a node may have at a time")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command
      ->add_option(
          "--registration-dir", options->registration_dir,
          "Where kubelet looks for drivers: its plugins_registry directory. Kubelet must see --endpoint "
          "under the same path")
      ->check(Check(IsAbsolutePath));
  AddProcessOptions(command, options);
}

void AddServeOptions(CLI::App* command, ServeOptions* options) {
  command->add_option("--mode", options->mode, "Which services: controller, node, or all")
      ->required()
      ->check(CLI::IsMember({"controller", "node", "all"}));
  AddServerOptions(command, options);
  command->add_option("--node-name", options->node_name, "This machine's name; it must stay the same")
      ->envname("NODE_NAME");
  command->add_option("--state-dir", options->state_dir, "The directory that keeps this machine's identity")
      ->check(Check(IsAbsolutePath))
      ->capture_default_str();
  command
      ->add_option("--cluster", options->cluster,
                   "This installation's name at the array, which can never change")
      ->check(Check(PlainName(63)))
      ->capture_default_str();
  command
      ->add_option(
          "--arrays", options->arrays_file,
          "The file that lists the array agents to use; without it, --pool is this controller's own array")
      ->check(Check(IsAbsolutePath));
  AddPoolOptions(command, options);
  command->add_option("--datapath-socket", options->datapath_socket, "Where `lunkeeper datapath` listens")
      ->check(Check(IsAbsolutePath))
      ->capture_default_str();
  command->add_flag("--start-datapath", options->start_datapath,
                    "Start a data path, which outlives this process, if none listens there");
  AddCoordinatorServerOptions(command, &options->coordinator);
  AddFailoverOptions(command, &options->failover);
  AddCoordinatorClientOptions(command, &options->coordinator);
  AddVariables(command);
}

void AddArrayOptions(CLI::App* command, ArrayAgentOptions* options) {
  ServeOptions& serve = options->serve;
  command->add_option("--name", serve.array_names, "The array's name, which can never change")
      ->required()
      ->expected(1)
      ->check(Check(PlainName(32)));
  AddPoolOptions(command, &serve);
  // A controller may do without an array of its own; an agent is for nothing else.
  for (const char* name : {"--pool", "--portal"}) command->get_option(name)->required();
  command->add_option("--listen", options->listen, "address:port for clients, behind mutual TLS")
      ->required()
      ->transform(ToPlainAddress)
      ->check(Check(IsAddress));
  command->add_option("--tls-cert", options->tls.certificate, "The agent's certificate, PEM")
      ->required()
      ->check(Check(IsAbsolutePath));
  command->add_option("--tls-key", options->tls.key, "Its key, PEM")
      ->required()
      ->check(Check(IsAbsolutePath));
  command->add_option("--tls-ca", options->tls.ca, "The CA of clients' certificates, PEM")
      ->required()
      ->check(Check(IsAbsolutePath));
  command
      ->add_option("--tls-revoked", options->revoked,
                   "A file of clients' certificates that are refused: a serial number or SHA-256 fingerprint "
                   "a line. It is read again when it changes")
      ->check(Check(IsAbsolutePath));
  command
      ->add_option(
          "--endpoint", serve.endpoint,
          "The socket of `lunkeeper status` and `accept-restore`; without it /run/lunkeeper/array-NAME.sock")
      ->check(Check(IsEndpoint));
  command
      ->add_option("--state-dir", serve.state_dir,
                   "The directory that remembers the catalogue's sequence, to notice an old backup")
      ->check(Check(IsAbsolutePath))
      ->capture_default_str();
  AddProcessOptions(command, &serve);
}

absl::Status CheckComplete(const ServeOptions& options) {
  if (options.HasNode() && options.node_name.empty()) {
    return absl::InvalidArgumentError("--node-name is required with --mode=node and --mode=all");
  }
  const bool own_array = options.arrays_file.empty();
  if (options.HasController() && own_array && (options.pool.empty() || options.portals.empty())) {
    return absl::InvalidArgumentError(
        "--mode=controller and --mode=all require --arrays, or --pool and --portal");
  }
  if (options.HasController() && own_array && options.array_names.size() != 1) {
    return absl::InvalidArgumentError("--array-name goes once with --pool: there is one array in it");
  }
  if (!own_array && (!options.HasController() || !options.pool.empty() || !options.portals.empty())) {
    return absl::InvalidArgumentError("--arrays goes with a controller, and without --pool and --portal");
  }
  return CheckCoordinator(options);
}

}  // namespace lunkeeper
