// `lunkeeper explain`: each reason why a claim is not what somebody wants, planted one by one.

#include "plugin/explain_command.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_join.h"
#include "fencing/failover/testing/fake_api.h"
#include "plugin/testing/shell.h"

namespace lunkeeper {
namespace {

using Catch::Contains;
using kube::Json;

constexpr char kClaim[] = "/api/v1/namespaces/db/persistentvolumeclaims/data-0";
constexpr char kClass[] = "/apis/storage.k8s.io/v1/storageclasses/fast";
constexpr char kPod[] = "/api/v1/namespaces/db/pods/db-0";

Json StorageClass(const std::string& binding = "Immediate", const std::string& array = "") {
  Json object = {{"provisioner", "csi.lunkeeper.io"}, {"volumeBindingMode", binding}};
  if (!array.empty()) object["parameters"] = {{"array", array}};
  return object;
}

Json Pod(const std::string& node, const std::string& unscheduled = "") {
  Json object = {{"spec", {{"nodeName", node}, {"volumes", Json::array()}}}};
  object["spec"]["volumes"].push_back({{"persistentVolumeClaim", {{"claimName", "data-0"}}}});
  if (!unscheduled.empty()) {
    object["status"]["conditions"] = Json::array();
    object["status"]["conditions"].push_back(
        {{"type", "PodScheduled"}, {"status", "False"}, {"message", unscheduled}});
  }
  return object;
}

// A pending claim of StorageClass fast, in a cluster with one array.
struct ClusterWithClaim {
  explicit ClusterWithClaim(fencing::FakeApi::Handler first = [](kube::Exchange&) { return false; })
      : api([](const std::string&) {}, std::move(first)) {
    shell.cluster = [this] { return api.Client(); };
    api.Put(kClaim, {{"spec", {{"storageClassName", "fast"}}}, {"status", {{"phase", "Pending"}}}});
    api.Put(kClass, StorageClass());
  }
  // Bound to a new volume of the array.
  VolumeId Bind(const NodeId& holder) {
    const VolumeId volume = Granted(*shell.array, "v", holder);
    BindTo(volume.value());
    return volume;
  }
  void BindTo(const std::string& id, const std::string& driver = "csi.lunkeeper.io") {
    api.Put(kClaim, {{"spec", {{"storageClassName", "fast"}, {"volumeName", "pv"}}},
                     {"status", {{"phase", "Bound"}}}});
    api.Put("/api/v1/persistentvolumes/pv",
            {{"spec", {{"csi", {{"driver", driver}, {"volumeHandle", id}}}}}});
  }
  std::string Explain() { return shell.Run({"explain", "pvc/data-0", "-n", "db"}); }

  fencing::FakeApi api;
  Shell shell;
};

}  // namespace

TEST_CASE("what there is not, and what is no claim, is refused with what is wanted") {
  ClusterWithClaim cluster;
  CHECK_THAT(cluster.shell.Run({"explain", "pvc/data-1", "-n", "db"}),
             Contains("there is no claim data-1 in namespace db") && Contains("NOT_FOUND"));
  CHECK_THAT(cluster.shell.Run({"explain", "pod/x"}), Contains("want pvc/NAME"));
}

TEST_CASE("a claim that is pending says which step it waits for") {
  ClusterWithClaim cluster;
  SECTION("nothing is wrong with its array") {
    CHECK_THAT(cluster.Explain(), Contains("pvc db/data-0 is Pending") && Contains("array a1 serves") &&
                                      Contains("kubectl describe pvc"));
  }
  SECTION("no StorageClass is named") {
    cluster.api.Put(kClaim, {{"status", {{"phase", "Pending"}}}});
    CHECK_THAT(cluster.Explain(), Contains("it names no StorageClass"));
  }
  SECTION("the StorageClass does not exist") {
    cluster.api.Remove(kClass);
    CHECK_THAT(cluster.Explain(), Contains("its StorageClass fast does not exist"));
  }
  SECTION("the StorageClass is another driver's") {
    cluster.api.Put(kClass, {{"provisioner", "ebs.csi.aws.com"}});
    CHECK_THAT(cluster.Explain(), Contains("is of ebs.csi.aws.com, and not of Lunkeeper"));
  }
  SECTION("it waits for its first pod, of which there is none") {
    cluster.api.Put(kClass, StorageClass("WaitForFirstConsumer"));
    CHECK_THAT(cluster.Explain(), Contains("no pod uses it") && !Contains("array"));
  }
  SECTION("it waits for its first pod, which has no node") {
    cluster.api.Put(kClass, StorageClass("WaitForFirstConsumer"));
    cluster.api.Put(kPod, Pod("", "0/3 nodes are available"));
    CHECK_THAT(cluster.Explain(), Contains("pod db-0 has no node: 0/3 nodes are available"));
  }
  SECTION("its array is not configured") {
    cluster.api.Put(kClass, StorageClass("Immediate", "rack9"));
    CHECK_THAT(cluster.Explain(), Contains("this controller has no array rack9; it has a1"));
  }
  SECTION("its array does not serve") {
    cluster.shell.array->FailWith(absl::UnavailableError("its host is down"));
    CHECK_THAT(cluster.Explain(), Contains("array a1 does not serve: its host is down"));
  }
}

TEST_CASE("a bound claim says who has its volume, and who waits for it") {
  ClusterWithClaim cluster;
  SECTION("a node that is connected") {
    const VolumeId volume = cluster.Bind(kNode);
    cluster.api.Put(kPod, Pod("a"));
    CHECK_THAT(cluster.Explain(), Contains("its volume is " + volume.value()) &&
                                      Contains("node " + kNode.value() + " has it, connected") &&
                                      !Contains("waits until"));
  }
  SECTION("a pod waits for another node") {
    cluster.Bind(kNode);
    cluster.api.Put(kPod, Pod("b"));
    CHECK_THAT(cluster.Explain(),
               Contains("pod db-0 on b waits until " + kNode.value() + " gives it up or is fenced"));
  }
  SECTION("a pod waits for another node with a volume of its own making") {
    cluster.Bind(kNode);
    Json pod = {{"spec", {{"nodeName", "b"}, {"volumes", Json::array()}}}};
    pod["spec"]["volumes"].push_back({{"name", "0"}, {"ephemeral", Json::object()}});
    cluster.api.Put("/api/v1/namespaces/db/pods/data", pod);
    CHECK_THAT(cluster.Explain(), Contains("pod data on b waits until"));
  }
  SECTION("a pod is on a node that is fenced") {
    const VolumeId volume = cluster.Bind(kNode);
    cluster.api.Put(kPod, Pod("a"));
    REQUIRE(
        cluster.shell.array->FenceNode(*cluster.shell.array->BeginTerm("leader"), {kNode, {volume}}).ok());
    CHECK_THAT(cluster.Explain(),
               Contains("pod db-0 is on a node that is fenced at array a1") && Contains("no node has it"));
  }
}

TEST_CASE("a bound claim says what is missing around it") {
  ClusterWithClaim cluster;
  SECTION("no pod uses it") {
    cluster.Bind(kNode);
    CHECK_THAT(cluster.Explain(), Contains("no pod uses it"));
  }
  SECTION("its array does not know it") {
    cluster.BindTo("a1-v00000000000000aa");
    CHECK_THAT(cluster.Explain(), Contains("array a1 does not know its volume a1-v00000000000000aa"));
  }
  SECTION("its array is not configured any more") {
    cluster.BindTo("rack9-v00000000000000aa");
    CHECK_THAT(cluster.Explain(), Contains("this controller has no array rack9"));
  }
  SECTION("it is another driver's") {
    cluster.BindTo("vol-1", "ebs.csi.aws.com");
    CHECK_THAT(cluster.Explain(), Contains("its volume is of ebs.csi.aws.com"));
  }
  SECTION("its PersistentVolume is gone") {
    cluster.Bind(kNode);
    cluster.api.Remove("/api/v1/persistentvolumes/pv");
    CHECK_THAT(cluster.Explain(), Contains("its PersistentVolume pv is gone"));
  }
}

TEST_CASE("a node that has a volume and is not connected to it is told of") {
  ClaimFacts facts;
  facts.claim = {{"spec", {{"volumeName", "pv"}}}};
  facts.volume = {
      {"spec", {{"csi", {{"driver", "csi.lunkeeper.io"}, {"volumeHandle", "a1-v0000000000000001"}}}}}};
  facts.status.add_arrays()->set_name("a1");
  auto* grant = facts.status.mutable_arrays(0)->add_grants();
  grant->set_volume("a1-v0000000000000001");
  grant->set_node(kNode.value());
  facts.volumes.add_volumes()->set_id("a1-v0000000000000001");
  const std::string connected = "has it, but is not connected to it";
  CHECK_THAT(absl::StrJoin(ExplainClaim(facts), "\n"), Contains(connected));
  grant->set_sessions(1);
  CHECK_THAT(absl::StrJoin(ExplainClaim(facts), "\n"), !Contains(connected));
}

TEST_CASE("a pod is said to wait for a node only where that node keeps the volume from it") {
  ClaimFacts facts;
  facts.claim = {{"spec", {{"volumeName", "pv"}}}};
  facts.volume = {
      {"spec", {{"csi", {{"driver", "csi.lunkeeper.io"}, {"volumeHandle", "a1-v0000000000000001"}}}}}};
  facts.status.add_arrays()->set_name("a1");
  auto* volume = facts.volumes.add_volumes();
  volume->set_id("a1-v0000000000000001");
  volume->add_nodes("a.00000000000000aa");
  const auto said = [&] { return absl::StrJoin(ExplainClaim(facts), "\n"); };
  facts.pods = {Pod("b")};
  REQUIRE_THAT(said(), Contains("waits until a.00000000000000aa"));
  SECTION("not where its own node has it too") {
    volume->add_nodes("b.00000000000000bb");
    facts.pods = {Pod("a"), Pod("b")};
    CHECK_THAT(said(), !Contains("waits until"));
  }
  SECTION("not where several nodes may have it") {
    facts.claim["spec"]["accessModes"] = {GENERATE("ReadWriteMany", "ReadOnlyMany")};
    CHECK_THAT(said(), !Contains("waits until"));
  }
  SECTION("not when it has ended") {
    facts.pods[0]["status"]["phase"] = GENERATE("Succeeded", "Failed");
    CHECK_THAT(said(), !Contains("waits until") && Contains("every pod that used it has ended"));
  }
}

TEST_CASE("a claim grows only where it asks for more than it has, however that is written") {
  ClusterWithClaim cluster;
  cluster.Bind(kNode);
  const auto explain = [&](const std::string& wanted, const std::string& has) {
    Json claim = {{"status", {{"phase", "Bound"}, {"capacity", {{"storage", has}}}}}};
    claim["spec"] = {{"storageClassName", "fast"}, {"volumeName", "pv"}};
    claim["spec"]["resources"]["requests"]["storage"] = wanted;
    cluster.api.Put(kClaim, claim);
    return cluster.Explain();
  };
  CHECK_THAT(explain("10G", "9537Mi"), !Contains("asks for"));
  CHECK_THAT(explain("1024Mi", "1Gi"), !Contains("asks for"));
  CHECK_THAT(explain("20G", "9537Mi"), Contains("it has 9537Mi and asks for 20G"));
}

TEST_CASE("a volume that its array could not list is not called deleted") {
  ClaimFacts facts;
  facts.claim = {{"spec", {{"volumeName", "pv"}}}};
  facts.volume = {
      {"spec", {{"csi", {{"driver", "csi.lunkeeper.io"}, {"volumeHandle", "a1-v0000000000000001"}}}}}};
  facts.status.add_arrays()->set_name("a1");
  auto* away = facts.volumes.add_away();
  away->set_array("a1");
  away->set_why("its host is down");
  CHECK_THAT(absl::StrJoin(ExplainClaim(facts), "\n"),
             Contains("array a1 did not say which volumes it has: its host is down") &&
                 !Contains("does not know") && !Contains("deleted"));
}

TEST_CASE("a controller that may not list pods explains what it can") {
  ClusterWithClaim cluster([](kube::Exchange& exchange) {
    if (exchange.path.find("/pods") == std::string::npos) return false;
    exchange.Refuse(403, "Forbidden", "pods is forbidden");
    return true;
  });
  const std::string unknown = "its pods are not known: this controller may not list them";
  SECTION("of a bound claim") {
    cluster.Bind(kNode);
    CHECK_THAT(cluster.Explain(),
               Contains("node " + kNode.value() + " has it") && Contains(unknown) && !Contains("no pod"));
  }
  SECTION("of a claim that waits for its first pod") {
    cluster.api.Put(kClass, StorageClass("WaitForFirstConsumer"));
    CHECK_THAT(cluster.Explain(), Contains("it waits until a pod that uses it has a node") &&
                                      Contains(unknown) && !Contains("no pod"));
  }
}

TEST_CASE("a claim that grows or is being deleted says what it waits for") {
  ClusterWithClaim cluster;
  const VolumeId volume = cluster.Bind(kNode);
  cluster.api.Put(kPod, Pod("a"));
  cluster.api.Merge(kClaim, {{"metadata", {{"deletionTimestamp", "2026-11-20T00:00:00Z"}}},
                             {"spec", {{"resources", {{"requests", {{"storage", "2Gi"}}}}}}},
                             {"status", {{"capacity", {{"storage", "1Gi"}}}}}});
  CHECK_THAT(cluster.Explain(), Contains("it is being deleted, and stays as long as pod db-0 uses it") &&
                                    Contains("it has 1Gi and asks for 2Gi"));
}

}  // namespace lunkeeper
