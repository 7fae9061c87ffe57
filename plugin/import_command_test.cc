// `lunkeeper import`: a cluster whose objects are gone, and an array that has kept its volumes.

#include <catch2/catch.hpp>

#include "fencing/failover/testing/fake_api.h"
#include "plugin/claim_fit.h"
#include "plugin/testing/shell.h"
#include "plugin/yaml.h"

namespace lunkeeper {
namespace {

using Catch::Contains;
using kube::Json;

constexpr char kVolumeName[] = "pvc-5f0c9d1e-0000-4000-8000-000000000001";
const std::string kUid = std::string(kVolumeName).substr(4);

VolumeSpec SpecOf(const std::string& name, Access access = Access::kExclusive,
                  VolumeMode mode = VolumeMode::kFilesystem) {
  VolumeSpec spec;
  spec.name = name;
  spec.size_bytes = 10ULL << 30;
  spec.uses.Add(access, mode);
  if (mode == VolumeMode::kFilesystem) spec.fs_type = "xfs";
  return spec;
}

struct TwoArrays : Arrays {
  std::vector<NamedArray> ListArrays() override { return {{"a1", one}, {"b2", other}}; }
  const std::shared_ptr<FakeArray> one = std::make_shared<FakeArray>(FakeArrayOptions{.name = "a1"});
  const std::shared_ptr<FakeArray> other = std::make_shared<FakeArray>(FakeArrayOptions{.name = "b2"});
};

// A new cluster with the StorageClass "fast", and the array of the old one.
struct NewCluster {
  explicit NewCluster(std::shared_ptr<Arrays> arrays = nullptr) : shell(std::move(arrays)) {
    shell.cluster = [this] { return api.Client(); };
    PutClass("fast");
  }
  void PutClass(const std::string& name, const Json& parameters = Json::object()) {
    api.Put("/apis/storage.k8s.io/v1/storageclasses/" + name, {{"provisioner", "csi.lunkeeper.io"},
                                                               {"parameters", parameters},
                                                               {"mountOptions", Json::array({"noatime"})}});
  }
  void PutClaim(const std::string& name, Json spec, const std::string& uid = "") {
    const Json claim = {{"spec", std::move(spec)}};
    const std::string path = "/api/v1/namespaces/db/persistentvolumeclaims/" + name;
    api.Put(path, claim);
    if (!uid.empty()) api.Merge(path, {{"metadata", {{"uid", uid}}}});  // instead of the server's own
  }
  VolumeId Make(const VolumeSpec& spec) { return shell.array->CreateVolume(spec)->id; }
  Shell::Output Print(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"import", "--output", "json"});
    return shell.RunFully(more);
  }
  Json Items(std::vector<std::string> more = {}) {
    const Shell::Output told = Print(std::move(more));
    CAPTURE(told.out, told.errors);
    CHECK(told.exit_code == 0);
    return Json::parse(told.out)["items"];
  }
  // As `kubectl apply` would, of the PersistentVolumes.
  void Apply(const Json& items) {
    for (const Json& item : items)
      if (item["kind"] == "PersistentVolume")
        api.Put("/api/v1/persistentvolumes/" + item["metadata"]["name"].get<std::string>(), item);
  }

  Shell shell;
  fencing::FakeApi api;
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

TEST_CASE("a claim that the operator names is printed, too, and bound to its volume") {
  NewCluster cluster;
  const VolumeId volume = cluster.Make(SpecOf(kVolumeName));
  const std::string wish = volume.value() + "=db/data-0";
  const Json items = cluster.Items({"--claim", wish});
  REQUIRE(items.size() == 2);
  CHECK(items[0]["spec"]["claimRef"] == Json::parse(R"({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                                                        "namespace": "db", "name": "data-0"})"));
  CHECK(items[1] == Json::parse(R"({
    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "db", "name": "data-0"},
    "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "storageClassName": "fast",
             "volumeName": "pvc-5f0c9d1e-0000-4000-8000-000000000001",
             "resources": {"requests": {"storage": "10Gi"}}}})"));
  CHECK_THAT(cluster.shell.Run({"import", "--claim", wish}), Contains("db/data-0"));
}

TEST_CASE("a claim that is there is not printed, and its classes are taken over") {
  NewCluster cluster;
  cluster.PutClass("slow");
  const VolumeId volume = cluster.Make(SpecOf(kVolumeName));
  const Json spec = {{"storageClassName", "slow"}, {"volumeAttributesClassName", "gold"}};
  SECTION("it is pending, and named by the operator") { cluster.PutClaim("data-0", spec); }
  SECTION("it waits for its PersistentVolume, as one that GitOps or a backup made") {
    Json waiting = spec;
    waiting["volumeName"] = kVolumeName;
    cluster.PutClaim("data-0", waiting, kUid);
    CHECK_THAT(cluster.shell.Run({"import"}), Contains("db/data-0"));
    CHECK_THAT(cluster.Print({"--claim", volume.value() + "=db/another"}).errors,
               Contains("claim db/data-0 waits for volume " + volume.value()));
  }
  SECTION("it was bound, and has lost its PersistentVolume: Kubernetes binds it by its uid alone") {
    Json bound = spec;
    bound["volumeName"] = kVolumeName;
    cluster.PutClaim("data-0", bound, kUid);
    cluster.api.Merge("/api/v1/namespaces/db/persistentvolumeclaims/data-0",
                      {{"metadata", {{"annotations", {{"pv.kubernetes.io/bind-completed", "yes"}}}}}});
    CHECK(cluster.Items()[0]["spec"]["claimRef"]["uid"] == kUid);
    return;
  }
  const Json items = cluster.Items({"--claim", volume.value() + "=db/data-0"});
  REQUIRE(items.size() == 1);
  CHECK_FALSE(items[0]["spec"]["claimRef"].contains("uid"));
  CHECK(items[0]["spec"]["storageClassName"] == "slow");
  CHECK(items[0]["spec"]["volumeAttributesClassName"] == "gold");
  CHECK(items[0]["spec"]["claimRef"]["name"] == "data-0");
}

TEST_CASE("a claim that has another volume, or is promised one, gets none") {
  NewCluster cluster;
  const std::string volume = cluster.Make(SpecOf(kVolumeName)).value();
  const std::string other = cluster.Make(SpecOf("pvc-other")).value();
  SECTION("it has another one") {
    cluster.PutClaim("data-0", {{"storageClassName", "fast"}, {"volumeName", "pvc-new"}});
    const auto told = cluster.Print({"--claim", volume + "=db/data-0"});
    CHECK((told.exit_code == 1 && told.out.empty()));
    CHECK_THAT(told.errors, Contains("claim db/data-0 has PersistentVolume pvc-new"));
  }
  SECTION("another PersistentVolume is reserved for it") {
    cluster.Apply(cluster.Items({other, "--claim", other + "=db/data-0"}));
    CHECK_THAT(cluster.Print({"--claim", volume + "=db/data-0"}).errors,
               Contains("PersistentVolume pvc-other is reserved for claim db/data-0 already"));
  }
  SECTION("it is named twice") {
    CHECK_THAT(cluster.Print({"--claim", volume + "=db/a", "--claim", other + "=db/a"}).errors,
               Contains("claim db/a is named for two volumes"));
    CHECK_THAT(cluster.Print({"--claim", volume + "=db/a", "--claim", volume + "=db/b"}).errors,
               Contains("the volume has one already"));
    CHECK_THAT(cluster.Print({other, "--claim", volume + "=db/a"}).errors,
               Contains("not among those that are named"));
  }
  for (const std::string& wish : {volume, volume + "=db", volume + "=db/", volume + "=a/b/c"})
    CHECK_THAT(cluster.Print({"--claim", wish}).errors, Contains("want VOLUME=NAMESPACE/NAME"));
  CHECK_THAT(cluster.Print({"--claim", "a1-v00=db/a"}).errors, Contains("there is no volume a1-v00"));
  CHECK_THAT(cluster.Print({"a1-v00"}).errors, Contains("there is no volume a1-v00"));
}

TEST_CASE("of several claims that wait for one volume, only the operator knows whose it is") {
  NewCluster cluster;
  const std::string volume = cluster.Make(SpecOf(kVolumeName)).value();
  const Json spec = {{"storageClassName", "fast"},
                     {"accessModes", Json::array({"ReadWriteOnce"})},
                     {"volumeName", kVolumeName}};
  cluster.PutClaim("a-copy", spec);
  cluster.PutClaim("data-0", spec);
  CHECK_THAT(cluster.shell.Run({"import"}), Contains("db/a-copy db/data-0"));
  const auto told = cluster.Print();
  CHECK((told.exit_code == 1 && told.out.empty()));
  CHECK_THAT(told.errors, Contains("db/a-copy and db/data-0 all wait for volume " + volume));
  const Json items = cluster.Items({"--claim", volume + "=db/data-0"});
  REQUIRE(items.size() == 1);
  CHECK(items[0]["spec"]["claimRef"]["name"] == "data-0");
}

// As a creation leaves them that was given up on one array and begun anew on another.
TEST_CASE("of two volumes of one name, the operator says which has the data") {
  const auto arrays = std::make_shared<TwoArrays>();
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
TEST_CASE("a claim that would not be bound to its volume gets none printed") {
  NewCluster cluster;
  const std::string volume = cluster.Make(SpecOf(kVolumeName)).value();
  Json spec = {{"storageClassName", "fast"},
               {"accessModes", Json::array({"ReadWriteOnce"})},
               {"resources", {{"requests", {{"storage", "10Gi"}}}}}};
  std::string why;
  SECTION("it is larger") {
    spec["resources"]["requests"]["storage"] = "10241Mi";
    why = "asks for 10241Mi, and the volume has 10Gi";
  }
  SECTION("it is for a block device") {
    spec["volumeMode"] = "Block";
    why = "asks for volumeMode Block";
  }
  SECTION("it is for many writers") {
    spec["accessModes"] = Json::array({"ReadWriteMany"});
    why = "asks for \"ReadWriteMany\"";
  }
  cluster.PutClaim("data-0", spec);
  const auto told = cluster.Print({"--claim", volume + "=db/data-0"});
  CHECK((told.exit_code == 1 && told.out.empty()));
  CHECK_THAT(told.errors, Contains("claim db/data-0 would not be bound") && Contains(why));
}

TEST_CASE("a volume is given the modes of its claim where it can have them") {
  NewCluster cluster;
  VolumeSpec spec = SpecOf(kVolumeName);
  Json wanted = {{"storageClassName", "fast"}, {"accessModes", Json::array({"ReadWriteOncePod"})}};
  SECTION("a pod is at one node") {}
  SECTION("nobody knows what it was made for") {
    spec.uses = {};
    wanted["accessModes"] = Json::array({"ReadWriteMany"});
    wanted["volumeMode"] = "Block";
  }
  const std::string volume = cluster.Make(spec).value();
  cluster.PutClaim("data-0", wanted);
  const Json made = cluster.Items({"--claim", volume + "=db/data-0"})[0]["spec"];
  CHECK(made["accessModes"] == wanted["accessModes"]);
  CHECK(made["volumeMode"] == wanted.value("volumeMode", "Filesystem"));
}

TEST_CASE("a quantity is read as Kubernetes reads it") {
  CHECK(ParseQuantity("10Gi") == 10.0 * (1 << 30));
  CHECK(ParseQuantity("1.5Ki") == 1536);
  CHECK(ParseQuantity("2k") == 2000);
  CHECK(ParseQuantity("3E") == 3e18);
  CHECK(ParseQuantity("1e3") == 1000);
  CHECK(ParseQuantity("1500m") == 1.5);
  for (const char* none : {"", "Gi", "x", "1KiB"}) CHECK_FALSE(ParseQuantity(none).has_value());
}

TEST_CASE("a volume that has a PersistentVolume, or is about to get one, is not lost") {
  NewCluster cluster;
  CHECK(cluster.shell.Run({"import"}) == "every volume has its PersistentVolume\n");
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
