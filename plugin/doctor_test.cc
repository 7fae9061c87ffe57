// `lunkeeper doctor`: each fault is planted alone and found alone, and nothing is found where nothing is
// wrong.

#include "plugin/doctor.h"

#include <atomic>
#include <catch2/catch.hpp>

#include "fencing/failover/testing/fake_api.h"
#include "plugin/testing/shell.h"

namespace lunkeeper {
namespace {

using Catch::Contains;
using kube::Json;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

Surroundings Healthy() {
  return {.now = kNow,
          .own_namespace = "lunkeeper",
          .connect = [](const std::string&) { return absl::OkStatus(); },
          .send_much = [](const std::string&) { return absl::OkStatus(); },
          .resolve = [](const std::string&) { return absl::OkStatus(); },
          .open_device = [](const std::string&) { return absl::OkStatus(); },
          .read_setting = [](const std::string&) { return "0"; }};
}

admin::v1::StatusResponse HealthyController() {
  admin::v1::StatusResponse status;
  status.set_mode("controller");
  auto* array = status.add_arrays();
  array->set_name("rack1");
  array->add_grants()->set_portal("10.0.0.5:3260");
  auto* certificate = status.add_certificates();
  certificate->set_file("/tls/tls.crt");
  certificate->set_end_unix_seconds(absl::ToUnixSeconds(kNow + absl::Hours(24 * 30)));
  return status;
}

admin::v1::StatusResponse HealthyNode() {
  admin::v1::StatusResponse status;
  status.set_node_id("a.00000000000000aa");
  auto* device = status.add_devices();
  device->set_health("healthy");
  device->set_portal("10.0.0.5:3260");
  status.add_peers("lunkeeper-coordinator.lunkeeper.svc:7443");
  return status;
}

// What is found, a line each.
std::string Told(const std::vector<Fault>& faults) {
  std::string told;
  for (const Fault& fault : faults) told += fault.about + ": " + fault.what + "\n";
  return told;
}

bool IsOneLine(const std::string& text) { return std::count(text.begin(), text.end(), '\n') == 1; }

// A healthy cluster of one node.
struct HealthyCluster {
  // `first` is asked first, as FakeApi says.
  explicit HealthyCluster(fencing::FakeApi::Handler first = [](kube::Exchange&) { return false; })
      : api([](const std::string&) {}, std::move(first)) {
    api.Put(kLease, {{"spec", {{"renewTime", kube::FormatMicroTime(kNow - absl::Seconds(4))}}}});
    api.Put("/api/v1/nodes/a", {{"spec", Json::object()}});
    Json csi_node;
    csi_node["spec"]["drivers"].push_back({{"name", "csi.lunkeeper.io"},
                                           {"nodeID", "a.00000000000000aa"},
                                           {"topologyKeys", {"array.lunkeeper.io/rack1"}}});
    api.Put(kCsiNode, csi_node);
    Label("a", "array.lunkeeper.io/rack1");
    Label("a", "example.com/array");
    api.Put(kClass, {{"provisioner", "csi.lunkeeper.io"}});
    api.Put("/api/v1/namespaces/lunkeeper", Json::object());
    Json pod;
    pod["spec"]["containers"].push_back({{"image", "registry.k8s.io/sig-storage/csi-provisioner:v6.3.0"}});
    pod["spec"]["containers"].push_back({{"image", "ghcr.io/lunkeeper/lunkeeper:1.0"}});
    api.Put(kPod, pod);
    PutNodePlugin("a");
    api.Put("/api/v1/nodes/left-out", {{"spec", Json::object()}});  // by a selector of the DaemonSet
  }
  void PutNodePlugin(const std::string& node) {
    Json pod;
    pod["metadata"]["labels"]["lunkeeper.io/plugin"] = "node";
    pod["spec"]["nodeName"] = node;
    api.Put("/api/v1/namespaces/lunkeeper/pods/node-" + node, pod);
  }
  void Label(const std::string& node, const std::string& key) {
    api.Merge("/api/v1/nodes/" + node, {{"metadata", {{"labels", {{key, "reachable"}}}}}});
  }
  std::string Check(const Surroundings& around = Healthy(), bool failover = true) {
    return Told(CheckCluster(*api.Client(), absl::Now() + absl::Seconds(20), around, failover));
  }

  static constexpr char kLease[] = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a";
  static constexpr char kCsiNode[] = "/apis/storage.k8s.io/v1/csinodes/a";
  static constexpr char kClass[] = "/apis/storage.k8s.io/v1/storageclasses/fast";
  static constexpr char kPod[] = "/api/v1/namespaces/lunkeeper/pods/controller";
  fencing::FakeApi api;
};

}  // namespace

TEST_CASE("where nothing is wrong, nothing is found") {
  CHECK(Told(CheckServer(HealthyController(), Healthy())).empty());
  CHECK(Told(CheckServer(HealthyNode(), Healthy())).empty());
  HealthyCluster cluster;
  CHECK(cluster.Check().empty());
}

TEST_CASE("a fault of a controller is found alone") {
  auto status = HealthyController();
  Surroundings around = Healthy();
  std::string wanted;
  SECTION("a certificate that ends soon") {
    status.mutable_certificates(0)->set_end_unix_seconds(absl::ToUnixSeconds(kNow + absl::Hours(24 * 10)));
    wanted = "certificates: /tls/tls.crt ends at 2027-01-25T08:00:00+00:00";
  }
  SECTION("a certificate that has ended") {
    status.mutable_certificates(0)->set_end_unix_seconds(absl::ToUnixSeconds(kNow - absl::Hours(1)));
    wanted = "certificates: /tls/tls.crt ended at";
  }
  SECTION("a certificate that is gone") {
    status.mutable_certificates(0)->set_trouble("no such file");
    wanted = "certificates: /tls/tls.crt: no such file";
  }
  SECTION("an array that does not serve") {
    status.mutable_arrays(0)->set_not_serving("its host is down");
    wanted = "arrays: array rack1 does not serve: its host is down";
  }
  SECTION("a pool that is nearly full") {
    status.mutable_arrays(0)->set_total_bytes(1000);
    status.mutable_arrays(0)->set_available_bytes(99);
    wanted = "arrays: the pool of array rack1 is full to 90 %";
  }
  SECTION("something else") {
    status.set_not_ready("kubelet has not asked");
    wanted = "server: it is not ready: kubelet has not asked";
  }
  const std::string told = Told(CheckServer(status, around));
  CHECK_THAT(told, Contains(wanted));
  CHECK(IsOneLine(told));
}

TEST_CASE("a fence that stands is said, and is no fault") {
  auto status = HealthyController();
  auto* fence = status.mutable_arrays(0)->add_fences();
  fence->set_node("b.00000000000000bb");
  fence->set_reason("it is silent");
  const std::vector<Fault> found = CheckServer(status, Healthy());
  CHECK_THAT(Told(found), Contains("fences: node b.00000000000000bb is fenced at array rack1: it is silent"));
  REQUIRE(found.size() == 1);
  CHECK(found.front().is_note);
}

TEST_CASE("a pool with room is well") {
  auto status = HealthyController();
  status.mutable_arrays(0)->set_total_bytes(1000);
  status.mutable_arrays(0)->set_available_bytes(100);
  CHECK(Told(CheckServer(status, Healthy())).empty());
}

TEST_CASE("a controller that does not reach the storage network is well") {
  Surroundings around = Healthy();
  around.connect = [](const std::string&) { return absl::UnavailableError("no route"); };
  CHECK(Told(CheckServer(HealthyController(), around)).empty());
}

TEST_CASE("a fault of a node is found alone") {
  auto status = HealthyNode();
  Surroundings around = Healthy();
  std::string wanted;
  SECTION("a portal that is not reached") {
    around.connect = [](const std::string& address) {
      return absl::UnavailableError("no route to " + address);
    };
    wanted = "portals: portal 10.0.0.5:3260 is not reached from here: no route to 10.0.0.5:3260";
  }
  SECTION("a kernel without FUSE or loop devices") {
    const std::string missing = GENERATE("/dev/fuse", "/dev/loop-control");
    around.open_device = [=](const std::string& path) {
      return path == missing ? absl::NotFoundError("no such file") : absl::OkStatus();
    };
    wanted = "kernel: " + missing + ": no such file: volumes cannot be attached; load the module";
  }
  SECTION("a kernel that ends what waits") {
    const std::string set = GENERATE("default_request_timeout", "max_request_timeout");
    around.read_setting = [=](const std::string& path) { return path.ends_with("/" + set) ? "60" : ""; };
    wanted = "kernel: fs.fuse." + set + " is 60 s: the kernel ends a volume";
  }
  SECTION("a path that loses packets of full size") {
    around.send_much = [](const std::string&) { return absl::UnavailableError("nothing came back"); };
    wanted = "mtu: portal 10.0.0.5:3260 is reached by small packets alone: nothing came back";
  }
  SECTION("a name server that does not know the coordinator") {
    around.resolve = [](const std::string& host) { return absl::NotFoundError("no " + host); };
    wanted = "dns: lunkeeper-coordinator.lunkeeper.svc:7443 has no address here: no lunkeeper-coordinator";
  }
  SECTION("a kernel that is too old") {
    around.read_setting = [](const std::string& path) {
      return path == "/proc/sys/kernel/osrelease" ? "5.10.0-35-amd64" : "0";
    };
    wanted = "kernel: Linux 5.10.0-35-amd64 is older than 5.12";
  }
  SECTION("a device that has failed") {
    status.mutable_devices(0)->set_volume("rack1-v1");
    status.mutable_devices(0)->set_health("failed");
    status.mutable_devices(0)->set_reason("fenced");
    wanted = "devices: volume rack1-v1 is failed: fenced";
  }
  const std::string told = Told(CheckServer(status, around));
  CHECK_THAT(told, Contains(wanted));
  CHECK(IsOneLine(told));
}

TEST_CASE("a fault of the cluster is found alone") {
  HealthyCluster cluster;
  Surroundings around = Healthy();
  std::string wanted;
  SECTION("a clock that is behind") {
    around.now = kNow - absl::Seconds(60);
    wanted = "clocks: this machine's clock is behind a kubelet's by 56s";
  }
  SECTION("a clock that is ahead") {
    around.now = kNow + absl::Seconds(60);
    wanted = "clocks: no kubelet's lease is younger than 1m4s";
  }
  SECTION("a kind that is missing") {
    const std::string kind = GENERATE("nodefences", "volumelocks");
    cluster.api.Forget("/apis/lunkeeper.io/v1alpha1/" + kind);
    wanted = "kinds: the CustomResourceDefinition " + kind + ".lunkeeper.io is missing";
  }
  SECTION("a node without the driver") {
    cluster.PutNodePlugin("b");
    wanted = "nodes: without the driver, so that no pod with a volume runs there: b\n";
  }
  SECTION("no node with the driver") {
    cluster.api.Remove(HealthyCluster::kCsiNode);
    wanted = "nodes: no node has the driver";
  }
  SECTION("no StorageClass") {
    cluster.api.Remove(HealthyCluster::kClass);
    wanted = "classes: no StorageClass names this driver";
  }
  SECTION("a namespace that admits no privileged pods") {
    cluster.api.Merge("/api/v1/namespaces/lunkeeper",
                      {{"metadata", {{"labels", {{"pod-security.kubernetes.io/enforce", "baseline"}}}}}});
    wanted = "pod security: namespace lunkeeper admits baseline pods only";
  }
  SECTION("an old sidecar") {
    Json pod;
    pod["spec"]["containers"].push_back({{"image", "mirror.example:5000/csi-resizer:v1.9.0"}});
    cluster.api.Put(HealthyCluster::kPod, pod);
    wanted = "sidecars: mirror.example:5000/csi-resizer:v1.9.0 is older";
  }
  const std::string told = cluster.Check(around);
  CHECK_THAT(told, Contains(wanted));
  CHECK(IsOneLine(told));
}

// Kubelet adds labels and never removes one.
TEST_CASE("a label of an array that the node does not reach is found alone") {
  HealthyCluster cluster;
  std::string wanted;
  SECTION("a label that kubelet left when the node's group lost an array") {
    cluster.Label("a", "array.lunkeeper.io/rack2");
    wanted =
        "nodes: node a has the label array.lunkeeper.io/rack2, and does not reach that array: pods with its "
        "volumes are sent there; kubectl label node a array.lunkeeper.io/rack2-";
  }
  SECTION("a label of a node that the DaemonSets do not select any more") {
    cluster.Label("left-out", "array.lunkeeper.io/rack1");
    wanted = "nodes: node left-out has the label array.lunkeeper.io/rack1, and does not reach";
  }
  SECTION("a node whose plugin is not registered, and registers it again") {
    cluster.PutNodePlugin("left-out");
    cluster.Label("left-out", "array.lunkeeper.io/rack1");
    wanted = "nodes: without the driver, so that no pod with a volume runs there: left-out\n";
  }
  const std::string told = cluster.Check();
  CHECK_THAT(told, Contains(wanted));
  CHECK(IsOneLine(told));
}

TEST_CASE("without failover nothing is asked that its rights are for") {
  HealthyCluster cluster([](kube::Exchange& exchange) {
    if (exchange.path.find("/pods") == std::string::npos) return false;
    exchange.Refuse(403, "Forbidden", "pods is forbidden");
    return true;
  });
  cluster.api.Forget("/apis/lunkeeper.io/v1alpha1/nodefences");
  CHECK(cluster.Check(Healthy(), false).empty());
  cluster.api.Remove(HealthyCluster::kCsiNode);
  CHECK_THAT(cluster.Check(Healthy(), false), Contains("nodes: no node has the driver"));
}

TEST_CASE("a pod of another chart in the namespace is not taken for the node plugin") {
  HealthyCluster cluster;
  Json pod;
  pod["metadata"]["labels"]["app.kubernetes.io/component"] = "node";
  pod["spec"]["nodeName"] = "elsewhere";
  cluster.api.Put("/api/v1/namespaces/lunkeeper/pods/other", pod);
  CHECK(cluster.Check().empty());
}

TEST_CASE("an API server that does not answer is found, and ends no other check") {
  HealthyCluster cluster;
  cluster.api.SetDown(true);
  const std::string told =
      Told(CheckCluster(*cluster.api.Client(), absl::Now() + absl::Seconds(1), Healthy(), true));
  CHECK_THAT(told, Contains("kinds: ") && Contains("clocks: ") && Contains("sidecars: "));
}

TEST_CASE("the command asks its server, says what it found, and its exit code is 1 then") {
  std::atomic<bool> lost = false;
  Shell shell([&lost](Backends& backends) {
    backends.certificates.push_back(
        [&lost] { return lost ? std::vector<std::string>{"/nowhere/tls.crt"} : std::vector<std::string>(); });
  });
  shell.cluster = []() -> absl::StatusOr<std::unique_ptr<kube::KubeClient>> {
    return absl::FailedPreconditionError("this is no pod");
  };
  Shell::Output told = shell.RunFully({"doctor"});
  CHECK(told.exit_code == 0);
  CHECK(told.out == "nothing that it looks for is wrong with the server\n");
  lost = true;
  told = shell.RunFully({"doctor"});
  CHECK(told.exit_code == 1);
  CHECK_THAT(told.out, Contains("certificates: /nowhere/tls.crt: "));
  // Its grants have no portal that somebody listens at.
  Granted(*shell.array, "v");
  CHECK_THAT(shell.RunFully({"doctor"}).out, Contains("portals: portal "));
  shell.server.reset();
  CHECK_THAT(shell.RunFully({"doctor"}).out, Contains("server: it does not answer: "));
}

}  // namespace lunkeeper
