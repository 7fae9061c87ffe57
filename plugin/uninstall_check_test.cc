// `lunkeeper uninstall-check` against an API server in memory.

#include "plugin/uninstall_check.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/driver.h"
#include "fencing/failover/testing/fake_api.h"

namespace lunkeeper {
namespace {

using Catch::Contains;
using kube::Json;

constexpr char kLocksPath[] = "/apis/lunkeeper.io/v1alpha1/volumelocks";
constexpr char kVolume[] = "rack1-v0000000000000001";
const UninstallCheckTimes kQuick{.settles = absl::Milliseconds(50), .every = absl::Milliseconds(10)};
// Only a change ends it, or the test fails by its own deadline.
const UninstallCheckTimes kPatient{.settles = absl::Seconds(60), .every = absl::Milliseconds(10)};

// A cluster with a bound volume of ours, that nobody uses, and one of another driver, that a pod uses.
struct UninstalledCluster {
  UninstalledCluster() {
    AddVolume("pvc-1", kDriverName, kVolume, "data-db-0");
    AddVolume("pvc-2", "other.example", "x", "scratch");
    AddPod("web-0", "scratch", "n1");
  }
  void AddVolume(const std::string& name, const std::string& driver, const std::string& handle,
                 const std::string& claim, const std::string& phase = "Bound",
                 const std::string& policy = "Delete") {
    api.Put("/api/v1/persistentvolumes/" + name, {{"spec",
                                                   {{"csi", {{"driver", driver}, {"volumeHandle", handle}}},
                                                    {"persistentVolumeReclaimPolicy", policy},
                                                    {"claimRef", {{"namespace", "db"}, {"name", claim}}}}},
                                                  {"status", {{"phase", phase}}}});
  }
  // An empty node: it has none yet.
  void AddPod(const std::string& name, const std::string& claim, const std::string& node,
              const std::string& phase = "Running", bool is_deleted = false) {
    Json pod = {{"spec", {{"volumes", {{{"persistentVolumeClaim", {{"claimName", claim}}}}}}}},
                {"status", {{"phase", phase}}}};
    if (!node.empty()) pod["spec"]["nodeName"] = node;
    if (is_deleted) pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
    api.Put("/api/v1/namespaces/db/pods/" + name, pod);
  }
  void AddLock(const std::string& handle, const std::string& node) {
    api.Put(absl::StrCat(kLocksPath, "/", handle), {{"status", {{"holders", {{{"node", node}}}}}}});
  }
  absl::Status Check(const UninstallCheckTimes& times = kQuick) { return CheckUninstall(*client, times); }
  std::string Refusal() {
    const absl::Status checked = Check();
    CHECK(absl::IsFailedPrecondition(checked));
    return std::string(checked.message());
  }

  std::atomic<int> lists = 0;  // of VolumeLocks, each the end of a look
  std::atomic<int> refused = 0;
  std::atomic<bool> forbids = false, falls_silent = false;  // then
  fencing::FakeApi api{[](const std::string&) {},
                       [this](kube::Exchange& exchange) {
                         lists += exchange.path == kLocksPath ? 1 : 0;
                         if (!forbids) return false;
                         if (falls_silent && refused > 0) {
                           exchange.Hang();
                           return true;
                         }
                         exchange.Refuse(403, "Forbidden", "may not list this");
                         ++refused;
                         return true;
                       }};
  std::unique_ptr<kube::KubeClient> client = api.Client();
};

}  // namespace

TEST_CASE("an uninstall goes on when no volume of ours is used") {
  UninstalledCluster cluster;
  CHECK(cluster.Check() == absl::OkStatus());
  // Their volumes are unmounted, or were never mounted.
  cluster.AddPod("done", "data-db-0", "n1", "Succeeded");
  cluster.AddPod("waiting", "data-db-0", "");
  CHECK(cluster.Check() == absl::OkStatus());
}

TEST_CASE("an uninstall is refused while a pod uses a volume, and says which and what to do") {
  UninstalledCluster cluster;
  cluster.AddPod("db-0", "data-db-0", "n1");
  CHECK_THAT(cluster.Refusal(), Contains("pvc-1 (claim db/data-db-0) on n1, by pod db/db-0") &&
                                    Contains("Nothing was uninstalled") && Contains("--no-hooks") &&
                                    Contains("remove-array") && !Contains("pvc-2"));
}

TEST_CASE("an uninstall is refused while a node holds a volume that no pod uses") {
  UninstalledCluster cluster;
  cluster.AddLock(kVolume, "n2");
  cluster.AddLock("rack1-v0000000000000002", "n3");  // without a PersistentVolume
  CHECK_THAT(cluster.Refusal(),
             Contains("pvc-1 (claim db/data-db-0) on n2;") && Contains("rack1-v0000000000000002 on n3."));
}

TEST_CASE("an uninstall is refused while a node is fenced that has nothing any more, and says what to do") {
  UninstalledCluster cluster;
  const std::string fence = "/apis/lunkeeper.io/v1alpha1/nodefences/n9.0123456789abcdef";
  cluster.api.Put(fence, {{"spec", {{"cause", "its fan is on fire"}}}});
  CHECK_THAT(cluster.Refusal(), Contains("n9.0123456789abcdef") && Contains("lunkeeper unfence") &&
                                    Contains("kubectl get nodefences") && Contains("--no-hooks"));
  cluster.api.Remove(fence);
  CHECK(cluster.Check() == absl::OkStatus());
  cluster.api.Forget("/apis/lunkeeper.io/v1alpha1/nodefences");
  CHECK(cluster.Check() == absl::OkStatus());
}

TEST_CASE("a NodeFence that is over is said to be kept by others, with their finalizers") {
  UninstalledCluster cluster;
  const std::string fences = "/apis/lunkeeper.io/v1alpha1/nodefences/";
  const Json kept = {"others/audit", "others/bill"};
  cluster.api.Put(fences + "n8.0123456789abcdef",
                  {{"metadata", {{"deletionTimestamp", "2026-01-01T00:00:00Z"}, {"finalizers", kept}}}});
  CHECK_THAT(cluster.Refusal(), Contains("are over") &&
                                    Contains("n8.0123456789abcdef (others/audit, others/bill)") &&
                                    Contains("--no-hooks") && !Contains("lunkeeper unfence"));
  cluster.api.Put(fences + "n9.0123456789abcdef", Json::object());
  CHECK_THAT(cluster.Refusal(), Contains("nodes are fenced: n9.0123456789abcdef.") &&
                                    Contains("n8.0123456789abcdef (others/audit, others/bill)"));
}

TEST_CASE("an uninstall waits for a pod that has ended and is not cleaned up, and for a volume's deletion") {
  UninstalledCluster cluster;
  cluster.AddVolume("pvc-3", kDriverName, "rack1-v0000000000000003", "gone", "Released");
  cluster.AddVolume("pvc-4", kDriverName, "rack1-v0000000000000004", "kept", "Released", "Retain");
  CHECK_THAT(cluster.Refusal(),
             Contains("pvc-3 (claim db/gone), which is being deleted") && !Contains("pvc-4"));
  cluster.api.Remove("/api/v1/persistentvolumes/pvc-3");
  cluster.AddPod("tested", "data-db-0", "n1", "Succeeded", true);
  CHECK_THAT(cluster.Refusal(), Contains("pvc-1 (claim db/data-db-0) on n1, by pod db/tested"));
}

TEST_CASE("of many used volumes the first are named and the others counted") {
  UninstalledCluster cluster;
  for (int i = 10; i < 35; ++i) cluster.AddLock(absl::StrCat("rack1-v00000000000000", i), "n1");
  CHECK_THAT(cluster.Refusal(), Contains("rack1-v0000000000000029") && Contains("; 5 more.") &&
                                    !Contains("rack1-v0000000000000030"));
}

TEST_CASE("what ends while the check looks holds up no uninstall") {
  UninstalledCluster cluster;
  cluster.AddLock(kVolume, "n1");
  auto checked = std::async(std::launch::async, [&] { return cluster.Check(kPatient); });
  while (cluster.lists < 2) std::this_thread::yield();
  cluster.api.Remove(absl::StrCat(kLocksPath, "/", kVolume));
  CHECK(checked.get() == absl::OkStatus());
}

TEST_CASE("without failover there are no VolumeLocks, and pods alone count") {
  UninstalledCluster cluster;
  cluster.api.Forget(kLocksPath);
  CHECK(cluster.Check() == absl::OkStatus());
  cluster.AddPod("db-0", "data-db-0", "n1");
  CHECK_THAT(cluster.Refusal(), Contains("by pod db/db-0"));
}

TEST_CASE("a check that cannot find out gives up in time, and says how to go on") {
  UninstalledCluster cluster;
  cluster.forbids = true;
  const absl::Status checked = cluster.Check({.timeout = absl::Seconds(3), .every = absl::Milliseconds(10)});
  CHECK(absl::IsPermissionDenied(checked));
  CHECK_THAT(std::string(checked.message()),
             Contains("could not be found out") && Contains("may not list this") && Contains("--no-hooks"));
}

// Else an answer that comes too late, because too little time is left for it, hides why it is in vain.
TEST_CASE("what an API server has said counts more than that it says nothing in the end") {
  UninstalledCluster cluster;
  cluster.forbids = cluster.falls_silent = true;
  const absl::Status checked = cluster.Check({.timeout = absl::Seconds(1), .every = absl::Milliseconds(10)});
  CHECK_THAT(std::string(checked.message()), Contains("may not list this"));
}

TEST_CASE("rights that come late hold up no uninstall") {
  UninstalledCluster cluster;
  cluster.forbids = true;
  auto checked = std::async(std::launch::async, [&] { return cluster.Check(kPatient); });
  while (cluster.refused == 0) std::this_thread::yield();
  cluster.forbids = false;
  CHECK(checked.get() == absl::OkStatus());
}

TEST_CASE("the command's exit code tells the Job") {
  UninstalledCluster cluster;
  CLI::App app;
  int exit_code = -1;
  AddUninstallCheckCommand(&app, &exit_code, [&] { return cluster.api.Client(); });
  app.parse("uninstall-check");
  CHECK(exit_code == 0);
}

}  // namespace lunkeeper
