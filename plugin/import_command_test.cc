// `lunkeeper import`: which volumes are lost, and what their PersistentVolumes are like.

#include "plugin/testing/new_cluster.h"
#include "plugin/yaml.h"

namespace lunkeeper {

using Catch::Contains;
using kube::Json;

namespace {

struct ArraysToImport : Arrays {
  std::vector<NamedArray> ListArrays() override { return {{"a1", one}, {"b2", other}}; }
  const std::shared_ptr<FakeArray> one = std::make_shared<FakeArray>(FakeArrayOptions{.name = "a1"});
  const std::shared_ptr<FakeArray> other = std::make_shared<FakeArray>(FakeArrayOptions{.name = "b2"});
};

}  // namespace

TEST_CASE("a lost volume's PersistentVolume is as it was, but kept for good, and reserved for one claim") {
  NewCluster cluster;
  const VolumeId volume = cluster.Make(SpecOf(kVolumeName));
  const Json items = cluster.Items();
  REQUIRE(items.size() == 1);
  CHECK(items[0] == Json::parse(R"({
    "apiVersion": "v1", "kind": "PersistentVolume",
    "metadata": {"name": "pvc-5f0c9d1e-0000-4000-8000-000000000001",
                 "annotations": {"pv.kubernetes.io/provisioned-by": "csi.lunkeeper.io"}},
    "spec": {
      "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
      "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "fast", "mountOptions": ["noatime"],
      "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "lunkeeper-import",
                   "name": "pvc-5f0c9d1e-0000-4000-8000-000000000001"},
      "csi": {"driver": "csi.lunkeeper.io", "volumeHandle": ")" +
                                volume.value() + R"(", "fsType": "xfs",
              "volumeAttributes": {"fsType": "xfs"}},
      "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "array.lunkeeper.io/a1", "operator": "In", "values": ["reachable"]}]}]}}}})"));
}

TEST_CASE("what a volume was made for decides about access modes and volume mode") {
  NewCluster cluster;
  VolumeSpec shared = SpecOf("shared", Access::kSharedWrite, VolumeMode::kBlock);
  shared.size_bytes = 3ULL << 20;
  shared.uses.Add(Access::kReadOnly, VolumeMode::kBlock);
  cluster.Make(shared);
  VolumeSpec unknown;
  unknown.name = "unknown";
  unknown.size_bytes = 1 << 20;
  cluster.Make(unknown);
  const Json items = cluster.Items();
  REQUIRE(items.size() == 2);
  for (const Json& item : items) {
    const Json& spec = item["spec"];
    const bool is_shared = item["metadata"]["name"] == "shared";
    CHECK(spec["volumeMode"] == (is_shared ? "Block" : "Filesystem"));
    CHECK(spec["accessModes"] ==
          (is_shared ? Json::array({"ReadOnlyMany", "ReadWriteMany"}) : Json::array({"ReadWriteOnce"})));
    CHECK(spec["capacity"]["storage"] == (is_shared ? "3Mi" : "1Mi"));
    CHECK(spec.contains("mountOptions") != is_shared);
    CHECK_FALSE(spec["csi"].contains("fsType"));
  }
}

TEST_CASE("of two volumes of one name, the operator says which has the data") {
  const auto arrays = std::make_shared<ArraysToImport>();
  const std::string one = arrays->one->CreateVolume(SpecOf(kVolumeName))->id.value();
  const std::string other = arrays->other->CreateVolume(SpecOf(kVolumeName))->id.value();
  NewCluster cluster(arrays);
  cluster.PutClaim("data-0", {{"storageClassName", "fast"},
                              {"accessModes", Json::array({"ReadWriteOnce"})},
                              {"volumeName", kVolumeName}});
  CHECK_THAT(cluster.Print().errors, Contains(one + " and " + other + " are both called " + kVolumeName));
  const Json items = cluster.Items({other});
  CHECK(items[0]["metadata"]["name"] == kVolumeName);
  CHECK(items[0]["spec"]["claimRef"]["name"] == "data-0");
  cluster.Apply(items);
  CHECK(cluster.Items()[0]["spec"]["claimRef"]["namespace"] == "lunkeeper-import");
}

// Kubernetes would have a new, empty volume made for it, and say nothing.
TEST_CASE("a volume that has a PersistentVolume, or is about to get one, is not lost") {
  NewCluster cluster;
  CHECK_THAT(cluster.shell.Run({"import"}),
             Contains("nothing of this cluster") && Contains("lunkeeper reassign"));
  const VolumeId volume = cluster.Make(SpecOf(kVolumeName));
  SECTION("what was applied is not printed again, and somebody who asks for it learns whose it is") {
    cluster.Apply(cluster.Items());
    const std::string whose = "volume " + volume.value() + " has PersistentVolume " + kVolumeName +
                              " already, for claim lunkeeper-import/" + kVolumeName;
    CHECK_THAT(cluster.Print({"--claim", volume.value() + "=db/data-0"}).errors, Contains(whose));
    CHECK_THAT(cluster.Print({volume.value()}).errors, Contains(whose));
    CHECK_THAT(cluster.shell.Run({"import", "-o", "yaml"}), Contains("# every volume has"));
  }
  SECTION("its claim is being provisioned") {
    cluster.PutClaim("data-0", {{"storageClassName", "fast"}}, kUid);
    CHECK_THAT(cluster.Print({volume.value()}).errors, Contains("is being made for claim db/data-0"));
  }
  CHECK(cluster.Items().empty());
}

TEST_CASE("a name that is taken or is none of Kubernetes' becomes the volume's id") {
  NewCluster cluster;
  cluster.api.Put("/api/v1/persistentvolumes/taken", {{"spec", {{"nfs", {{"server", "elsewhere"}}}}}});
  for (const char* name : {"taken", "Über_volume"}) {
    const VolumeId volume = cluster.Make(SpecOf(name));
    CHECK(cluster.Items({volume.value()})[0]["metadata"]["name"] == volume.value());
  }
}

TEST_CASE("where several StorageClasses are possible, the operator says which") {
  NewCluster cluster;
  cluster.PutClass("elsewhere", {{"array", "b2"}});
  cluster.Make(SpecOf(kVolumeName));
  CHECK(cluster.Items()[0]["spec"]["storageClassName"] == "fast");
  cluster.PutClass("here", {{"array", "a1"}});
  CHECK_THAT(cluster.Print().errors, Contains("StorageClasses fast, here: say which with --storage-class"));
  CHECK(cluster.Items({"--storage-class", "here"})[0]["spec"]["storageClassName"] == "here");
  CHECK_THAT(cluster.Print({"--storage-class", "elsewhere"}).errors,
             Contains("this cluster has no StorageClass elsewhere of Lunkeeper for array a1"));
}

TEST_CASE("a node of the old cluster that still has a volume is named, with what to do") {
  NewCluster cluster;
  const VolumeId volume = Granted(*cluster.shell.array, "v");
  const auto told = cluster.Print();
  CHECK(told.exit_code == 0);
  CHECK_THAT(told.errors, Contains("volume " + volume.value() + " is still held by node " + kNode.value()) &&
                              Contains("lunkeeper fence " + kNode.value() + " --array a1"));
  cluster.api.Put("/apis/storage.k8s.io/v1/csinodes/a",
                  {{"spec", {{"drivers", {{{"name", "csi.lunkeeper.io"}, {"nodeID", kNode.value()}}}}}}});
  CHECK(cluster.Print().errors.empty());
}

TEST_CASE("nothing is lost where nobody can tell: no cluster, or an array that is away") {
  NewCluster cluster;
  cluster.Make(SpecOf(kVolumeName));
  SECTION("an array is away") {
    cluster.shell.array->FailWith(absl::UnavailableError("its host is down"));
    const auto told = cluster.Print();
    CHECK(told.exit_code == 1);
    CHECK_THAT(told.errors, Contains("array a1 does not answer"));
  }
  SECTION("the API server is away") {
    cluster.api.SetDown(true);
    const auto told = cluster.Print({"--timeout", "1"});
    CHECK((told.exit_code == 1 && told.out.empty()));
  }
  SECTION("there is no cluster") {
    cluster.shell.cluster = []() -> absl::StatusOr<std::unique_ptr<kube::KubeClient>> {
      return absl::FailedPreconditionError("this is no pod");
    };
    const auto told = cluster.Print();
    CHECK((told.exit_code == 1 && told.out.empty()));
  }
}

TEST_CASE("a manifest as YAML has the same meaning as in JSON") {
  const Json json = Json::parse(R"({"kind": "X", "spec": {"list": [{"a": "yes", "b": ["1", 2]}, "c: d"],
                                    "empty": {}, "none": [], "flag": true}})");
  CHECK(ToYaml(json) ==
        "kind: \"X\"\n"
        "spec:\n"
        "  empty: {}\n"
        "  flag: true\n"
        "  list:\n"
        "    - a: \"yes\"\n"
        "      b:\n"
        "        - \"1\"\n"
        "        - 2\n"
        "    - \"c: d\"\n"
        "  none: []\n");
}

}  // namespace lunkeeper
