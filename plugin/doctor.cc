// Each check is a function of the facts that were read, and returns faults; a check never stops the others.
// Limits are wide, so that every fault that it prints is worth a look.
#include "plugin/doctor.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/certificate.h"
#include "base/driver.h"
#include "base/host_port.h"
#include "devices/datapath/initiator.h"
#include "fencing/failover/facts.h"
#include "fencing/failover/record.h"
#include "fencing/kube/list_all.h"
#include "plugin/admin_call.h"
#include "plugin/doctor_surroundings.h"

namespace lunkeeper {
namespace {

using kube::FieldAt;
using kube::Json;
using kube::TextAt;
using Faults = std::vector<Fault>;

// A kubelet renews its lease every ten seconds, and the newest of all kubelets' leases is younger than that.
constexpr absl::Duration kClockBehind = absl::Seconds(5), kClockAhead = absl::Seconds(30);
constexpr double kFull = 0.9;  // as the alert LunkeeperPoolIsNearlyFull
// With an array's name: the Node service's topology, which kubelet makes labels of.
constexpr char kReachesArray[] = "array.lunkeeper.io/";

void CheckCertificates(const admin::v1::StatusResponse& status, absl::Time now, Faults& faults) {
  for (const auto& certificate : status.certificates()) {
    const absl::Time end = absl::FromUnixSeconds(certificate.end_unix_seconds());
    if (!certificate.trouble().empty()) {
      faults.push_back({"certificates", absl::StrCat(certificate.file(), ": ", certificate.trouble())});
    } else if (end < now + kCertificateSoon) {
      faults.push_back(
          {"certificates", absl::StrCat(certificate.file(), end < now ? " ended at " : " ends at ",
                                        absl::FormatTime(absl::RFC3339_sec, end, absl::UTCTimeZone()),
                                        ": renew it (docs/install.md)")});
    }
  }
}

void CheckArrays(const admin::v1::StatusResponse& status, Faults& faults) {
  for (const auto& array : status.arrays()) {
    if (!array.not_serving().empty())
      faults.push_back(
          {"arrays", absl::StrCat("array ", array.name(), " does not serve: ", array.not_serving())});
    for (const std::string& part : array.unseen())
      faults.push_back(
          {"arrays", absl::StrCat("a part of array ", array.name(), " does not answer: ", part)});
  }
}

void CheckPools(const admin::v1::StatusResponse& status, Faults& faults) {
  for (const auto& array : status.arrays()) {
    const auto size = static_cast<double>(array.total_bytes());
    const double full = size == 0 ? 0 : 1 - static_cast<double>(array.available_bytes()) / size;
    if (full > kFull)
      faults.push_back({"arrays", absl::StrCat("the pool of array ", array.name(), " is full to ",
                                               static_cast<int>(full * 100),
                                               " %: grow it, or delete volumes and snapshots")});
  }
}

// One that stands for long may be right: of a node that is gone, say.
void NoteFences(const admin::v1::StatusResponse& status, Faults& faults) {
  for (const auto& array : status.arrays())
    for (const auto& fence : array.fences())
      faults.push_back(
          {.about = "fences",
           .what = absl::StrCat("node ", fence.node(), " is fenced at array ", array.name(), ": ",
                                fence.reason().empty() ? "no reason is known" : fence.reason()),
           .is_note = true});
}

// Of a controller: the portals of its grants. Of a node: those of its devices.
std::set<std::string> PortalsOf(const admin::v1::StatusResponse& status) {
  std::set<std::string> portals;
  for (const auto& array : status.arrays())
    for (const auto& grant : array.grants()) portals.insert(grant.portal());
  for (const auto& device : status.devices()) portals.insert(device.portal());
  portals.erase("");
  return portals;
}

// Controllers need not reach the storage network.
void CheckPortals(const admin::v1::StatusResponse& status, const Surroundings& around, Faults& faults) {
  if (status.mode() == "controller") return;
  for (const std::string& portal : PortalsOf(status)) {
    const absl::Status reached = around.connect(portal);
    if (!reached.ok()) {
      faults.push_back(
          {"portals", absl::StrCat("portal ", portal, " is not reached from here: ", reached.message(),
                                   "; look at the storage host, the network and firewalls")});
    } else if (const absl::Status carried = around.send_much(portal); !carried.ok()) {
      faults.push_back(
          {"mtu", absl::StrCat("portal ", portal, " is reached by small packets alone: ", carried.message(),
                               "; set the same MTU at each port on the way")});
    }
  }
}

// "6.1.0-40-amd64". What cannot be read is not.
bool IsTooOld(const std::string& release) {
  const std::vector<std::string> parts = absl::StrSplit(release, absl::ByAnyChar(".-"));
  int major = 0, minor = 0;
  if (parts.size() < 2 || !absl::SimpleAtoi(parts[0], &major) || !absl::SimpleAtoi(parts[1], &minor))
    return false;
  return std::pair(major, minor) < std::pair(5, 12);
}

void CheckNames(const admin::v1::StatusResponse& status, const Surroundings& around, Faults& faults) {
  for (const std::string& peer : status.peers()) {
    const auto where = ParseHostPort(peer);
    const absl::Status found = around.resolve(where ? where->host : peer);
    if (!found.ok())
      faults.push_back({"dns", absl::StrCat(peer, " has no address here: ", found.message(),
                                            "; look at the cluster's DNS and the pod's dnsPolicy")});
  }
}

void CheckKernel(const admin::v1::StatusResponse& status, const Surroundings& around, Faults& faults) {
  if (status.node_id().empty()) return;
  // Opened and not only looked for: the file may be there while the module is missing or access is forbidden.
  for (const auto& [path, module] :
       {std::pair("/dev/fuse", "fuse"), std::pair("/dev/loop-control", "loop")}) {
    const absl::Status opened = around.open_device(path);
    if (!opened.ok())
      faults.push_back({"kernel", absl::StrCat(path, ": ", opened.message(),
                                               ": volumes cannot be attached; load the module ", module)});
  }
  const std::string release = around.read_setting("/proc/sys/kernel/osrelease");
  if (IsTooOld(release))
    faults.push_back(
        {"kernel", absl::StrCat("Linux ", release, " is older than 5.12, which the data path needs")});
  // Linux 6.15 and later end a FUSE connection, for good, when one request takes longer. Requests wait here
  // for as long as an array is away.
  for (const char* setting : {"default_request_timeout", "max_request_timeout"}) {
    const std::string value = around.read_setting(absl::StrCat("/proc/sys/fs/fuse/", setting));
    if (value.empty() || value == "0") continue;
    faults.push_back(
        {"kernel", absl::StrCat("fs.fuse.", setting, " is ", value,
                                " s: the kernel ends a volume whose array does not answer for so "
                                "long; set it to 0, which counts for volumes that are attached "
                                "from then on")});
  }
}

void CheckDevices(const admin::v1::StatusResponse& status, Faults& faults) {
  for (const auto& device : status.devices())
    if (device.health() != ToString(DeviceHealth::kHealthy))
      faults.push_back({"devices", absl::StrCat("volume ", device.volume(), " is ", device.health(), ": ",
                                                device.reason())});
}

// One run of CheckCluster.
class ClusterCheck {
 public:
  ClusterCheck(kube::KubeClient& client, absl::Time deadline, const Surroundings& around)
      : client_(client), deadline_(deadline), around_(around) {}

  Faults Run(bool failover) {
    CheckNodes();
    CheckClasses();
    if (failover) {
      CheckKinds();
      CheckClocks();
      CheckPodSecurity();
      CheckSidecars();
    }
    return std::move(faults_);
  }

 private:
  void Add(const char* about, const std::string& what) { faults_.push_back({about, what}); }

  // Nothing, and a fault, if there is no answer.
  std::optional<std::vector<Json>> List(const char* about, const kube::Selection& selection) {
    auto found = kube::ListAll(client_, selection, {deadline_});
    if (found.ok()) return *std::move(found);
    Add(about, absl::StrCat(selection.resource.plural, " cannot be listed: ", found.status().message()));
    return std::nullopt;
  }

  void CheckKinds() {
    for (const char* kind : {"nodefences", "volumelocks"}) {
      const auto found = kube::ListAll(client_, {{"lunkeeper.io", "v1alpha1", kind}}, {deadline_});
      if (absl::IsNotFound(found.status()))
        Add("kinds",
            absl::StrCat("the CustomResourceDefinition ", kind,
                         ".lunkeeper.io is missing, and without it failover does not act: install the "
                         "chart again"));
      else if (!found.ok())
        Add("kinds", absl::StrCat(kind, " cannot be listed: ", found.status().message()));
    }
  }

  // All kubelets' leases would have to be late at the same time, or the clock here is wrong.
  void CheckClocks() {
    const auto leases = List("clocks", {{"coordination.k8s.io", "v1", "leases"}, "kube-node-lease"});
    if (!leases) return;
    absl::Time newest = absl::InfinitePast();
    for (const Json& lease : *leases) {
      const auto renewed = kube::ParseMicroTime(TextAt(lease, {"spec", "renewTime"}));
      if (renewed.ok()) newest = std::max(newest, *renewed);
    }
    if (newest == absl::InfinitePast()) return;
    if (newest > around_.now + kClockBehind)
      Add("clocks", absl::StrCat("this machine's clock is behind a kubelet's by ",
                                 absl::FormatDuration(newest - around_.now), ": set the clocks by NTP"));
    if (newest < around_.now - kClockAhead)
      Add("clocks",
          absl::StrCat("no kubelet's lease is younger than ", absl::FormatDuration(around_.now - newest),
                       ": this machine's clock is ahead, or no kubelet reaches the API server"));
  }

  // Expected on the nodes that have a pod of the node plugin: its DaemonSets may leave nodes out.
  void CheckNodes() {
    auto pods = kube::ListAll(client_, {kube::kPods, around_.own_namespace}, {deadline_});
    // The chart lets a controller list pods for failover alone: else it is seen only if no node has the
    // driver.
    if (absl::IsPermissionDenied(pods.status())) pods = std::vector<Json>();
    if (!pods.ok()) Add("nodes", absl::StrCat("pods cannot be listed: ", pods.status().message()));
    const auto csi_nodes = List("nodes", {kube::kCsiNodes});
    if (!pods.ok() || !csi_nodes) return;
    std::set<std::string> without;
    bool nowhere = true;
    for (const Json& pod : *pods)
      if (TextAt(pod, {"metadata", "labels", fencing::kPluginLabel}) == "node" &&
          !TextAt(pod, {"spec", "nodeName"}).empty())
        without.insert(TextAt(pod, {"spec", "nodeName"}));
    for (const Json& node : *csi_nodes) {
      // Registered means that kubelet has written our node id into the CSINode.
      if (!fencing::ReadNodeId(node)) continue;
      without.erase(TextAt(node, {"metadata", "name"}));
      nowhere = false;
    }
    CheckLabels(*csi_nodes, without);
    if (nowhere)
      Add("nodes", "no node has the driver: look at the node plugin's DaemonSet and its events");
    else if (!without.empty())
      Add("nodes", absl::StrCat("without the driver, so that no pod with a volume runs there: ",
                                absl::StrJoin(without, ", ")));
  }

  // Kubelet only adds labels, and the scheduler goes by them. Of `registering` nodes it will add them again.
  void CheckLabels(const std::vector<Json>& csi_nodes, const std::set<std::string>& registering) {
    const auto nodes = List("nodes", {kube::kNodes});
    if (!nodes) return;
    std::set<std::pair<std::string, std::string>> reached;
    for (const Json& csi_node : csi_nodes)
      for (const Json& driver : FieldAt(csi_node, {"spec", "drivers"}))
        if (TextAt(driver, {"name"}) == kDriverName)
          for (const Json& key : FieldAt(driver, {"topologyKeys"}))
            reached.emplace(TextAt(csi_node, {"metadata", "name"}), TextAt(key, {}));
    for (const Json& node : *nodes)
      for (const auto& label : FieldAt(node, {"metadata", "labels"}).items()) {
        const std::string name = TextAt(node, {"metadata", "name"});
        if (absl::StartsWith(label.key(), kReachesArray) && !reached.contains({name, label.key()}) &&
            !registering.contains(name))
          Add("nodes", absl::StrCat("node ", name, " has the label ", label.key(), ", and does not reach ",
                                    "that array: pods with its volumes are sent there; kubectl label node ",
                                    name, " ", label.key(), "-"));
      }
  }

  void CheckClasses() {
    const auto classes = List("classes", {{"storage.k8s.io", "v1", "storageclasses"}});
    if (classes && std::none_of(classes->begin(), classes->end(), [](const Json& each) {
          return TextAt(each, {"provisioner"}) == kDriverName;
        }))
      Add("classes",
          "no StorageClass names this driver, so no claim gets a volume: see storageClasses of the chart");
  }

  void CheckPodSecurity() {
    const auto spaces = List("pod security", {{"", "v1", "namespaces"}});
    if (!spaces) return;
    for (const Json& space : *spaces) {
      const Json& labels = FieldAt(space, {"metadata", "labels"});
      const std::string level = TextAt(labels, {"pod-security.kubernetes.io/enforce"});
      // Without the label the API server's own default counts, which cannot be read from here.
      if (TextAt(space, {"metadata", "name"}) == around_.own_namespace && !level.empty() &&
          level != "privileged")
        Add("pod security",
            absl::StrCat("namespace ", around_.own_namespace, " admits ", level,
                         " pods only, and node plugins are privileged: kubectl label namespace ",
                         around_.own_namespace,
                         " pod-security.kubernetes.io/enforce=privileged --overwrite"));
    }
  }

  // Older ones than the chart is tested with.
  void CheckSidecars() {
    static const std::map<std::string, int> kOldest = {
        {"csi-provisioner", 6}, {"csi-resizer", 2}, {"csi-snapshotter", 8}};
    const auto pods = List("sidecars", {kube::kPods, around_.own_namespace});
    if (!pods) return;
    std::set<std::string> old;
    for (const Json& pod : *pods)
      for (const Json& container : FieldAt(pod, {"spec", "containers"})) {
        const std::string image = TextAt(container, {"image"});
        // Another form of tag, or a digest, says nothing of the version and is passed over.
        const std::vector<std::string> parts = absl::StrSplit(image.substr(image.rfind('/') + 1), ":v");
        const auto known = kOldest.find(parts.front());
        int version = 0;
        if (known == kOldest.end() || parts.size() != 2) continue;
        const std::vector<std::string> numbers = absl::StrSplit(parts[1], '.');
        if (absl::SimpleAtoi(numbers.front(), &version) && version < known->second) old.insert(image);
      }
    for (const std::string& image : old)
      Add("sidecars",
          absl::StrCat(image, " is older than what this version is tested with: take the chart's"));
  }

  kube::KubeClient& client_;
  const absl::Time deadline_;
  const Surroundings& around_;
  Faults faults_;
};

int PrintDiagnosis(const Diagnosis& diagnosis) {
  bool well = true;
  for (const Fault& fault : diagnosis.faults) {
    std::cout << fault.about << ": " << fault.what << '\n';
    well = well && fault.is_note;
  }
  if (!well) return 1;
  std::cout << "nothing that it looks for is wrong with the server"
            << (diagnosis.of_cluster ? " or the cluster" : "") << '\n';
  return 0;
}

}  // namespace

Faults CheckServer(const admin::v1::StatusResponse& status, const Surroundings& around) {
  Faults faults;
  CheckArrays(status, faults);
  CheckPools(status, faults);
  NoteFences(status, faults);
  CheckCertificates(status, around.now, faults);
  CheckPortals(status, around, faults);
  CheckNames(status, around, faults);
  CheckKernel(status, around, faults);
  CheckDevices(status, faults);
  if (!status.not_ready().empty())
    faults.push_back({"server", absl::StrCat("it is not ready: ", status.not_ready())});
  return faults;
}

Faults CheckCluster(kube::KubeClient& client, absl::Time deadline, const Surroundings& around,
                    bool failover) {
  return ClusterCheck(client, deadline, around).Run(failover);
}

// A node plugin is in a pod, too, but has no rights at the API server.
Diagnosis FindFaults(const AdminTarget& target, const MakeClient& cluster) {
  const Surroundings around = RealSurroundings();
  const auto status = AskServer<admin::v1::StatusRequest, admin::v1::StatusResponse>(
      target, &admin::v1::Admin::Stub::Status, {});
  Diagnosis found;
  if (status.ok()) {
    found.faults = CheckServer(*status, around);
  } else {
    found.faults = {{"server", absl::StrCat("it does not answer: ", status.status().message())}};
  }
  const auto client = cluster();
  found.of_cluster = client.ok() && (!status.ok() || status->node_id().empty());
  if (!found.of_cluster) return found;
  const absl::Time deadline = absl::Now() + absl::Seconds(target.timeout_seconds);
  // A server that does not answer may have failover, so what that needs is checked.
  const bool failover = !status.ok() || status->failover_size() > 0;
  for (Fault& fault : CheckCluster(**client, deadline, around, failover))
    found.faults.push_back(std::move(fault));
  return found;
}

void AddDoctorCommand(CLI::App* app, int* exit_code, const MakeClient& cluster) {
  const auto target = std::make_shared<AdminTarget>();
  AddAdminCommand(app, "doctor", "Look for what is wrong with this server and its cluster", target.get())
      ->callback([=] { *exit_code = PrintDiagnosis(FindFaults(*target, cluster)); });
}

}  // namespace lunkeeper
