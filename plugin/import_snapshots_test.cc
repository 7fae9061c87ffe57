// `lunkeeper import`: which snapshots are lost, and what their objects are like.

#include "plugin/testing/new_cluster.h"

namespace lunkeeper {
namespace {

using Catch::Contains;
using kube::Json;

constexpr char kSnapshotApi[] = "/apis/snapshot.storage.k8s.io/v1/";
constexpr char kSnapshotName[] = "snapshot-0c0ffee0-0000-4000-8000-000000000001";
constexpr char kContentName[] = "snapcontent-0c0ffee0-0000-4000-8000-000000000001";

// A volume of claim db/data whose PersistentVolume is there, and a snapshot of it that has no object.
struct SnapshotCluster : NewCluster {
  SnapshotCluster() {
    VolumeSpec spec = SpecOf(kVolumeName);
    spec.claim = "db/data";
    volume = Make(spec);
    Apply(Items());
    snapshot = Take(kSnapshotName);
  }
  SnapshotId Take(const std::string& name) { return shell.array->CreateSnapshot(name, volume)->id; }
  void PutContent(const std::string& name, const Json& spec, const Json& status = Json::object()) {
    Json object = {{"spec", spec}, {"status", status}};
    object["spec"]["driver"] = "csi.lunkeeper.io";
    api.Put(std::string(kSnapshotApi) + "volumesnapshotcontents/" + name, object);
  }
  void PutVolumeSnapshot(const std::string& space, const std::string& name, const Json& source,
                         const Json& status = Json::object()) {
    api.Put(std::string(kSnapshotApi) + "namespaces/" + space + "/volumesnapshots/" + name,
            {{"spec", {{"source", source}}}, {"status", status}});
  }
  void PutSnapshotClass(const std::string& name, const std::string& driver = "csi.lunkeeper.io") {
    api.Put(std::string(kSnapshotApi) + "volumesnapshotclasses/" + name, {{"driver", driver}});
  }
  // As `kubectl apply` would.
  void ApplySnapshots(const Json& items) {
    for (const Json& item : items) {
      const std::string name = item["metadata"]["name"];
      if (item["kind"] == "VolumeSnapshotContent") PutContent(name, item["spec"]);
      if (item["kind"] == "VolumeSnapshot")
        PutVolumeSnapshot(item["metadata"]["namespace"], name, item["spec"]["source"]);
    }
  }
  std::string Wish(const std::string& names) const { return snapshot.value() + "=" + names; }

  VolumeId volume;
  SnapshotId snapshot;
};

}  // namespace

TEST_CASE_METHOD(SnapshotCluster,
                 "a lost snapshot's content is kept for good, and bound in its claim's namespace") {
  PutSnapshotClass("snapshots");
  PutSnapshotClass("others", "other.driver");
  const Json items = Items();
  REQUIRE(items.size() == 2);
  CHECK(items[0] == Json::parse(R"({
    "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
    "metadata": {"name": "snapcontent-0c0ffee0-0000-4000-8000-000000000001"},
    "spec": {
      "driver": "csi.lunkeeper.io", "deletionPolicy": "Retain", "volumeSnapshotClassName": "snapshots",
      "sourceVolumeMode": "Filesystem",
      "source": {"snapshotHandle": ")" +
                                snapshot.value() + R"("},
      "volumeSnapshotRef": {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "namespace": "db", "name": "snapshot-0c0ffee0-0000-4000-8000-000000000001"}}})"));
  CHECK(items[1] == Json::parse(R"({
    "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
    "metadata": {"namespace": "db", "name": "snapshot-0c0ffee0-0000-4000-8000-000000000001"},
    "spec": {"volumeSnapshotClassName": "snapshots", "source": {
      "volumeSnapshotContentName": "snapcontent-0c0ffee0-0000-4000-8000-000000000001"}}})"));
  CHECK_THAT(shell.Run({"import"}),
             Contains(snapshot.value()) && Contains(std::string("db/") + kSnapshotName));
}

TEST_CASE_METHOD(SnapshotCluster, "a person's word goes before the array's name, and is checked") {
  const Json items = Items({"--snapshot", Wish("backups/monday")});
  CHECK(items[0]["spec"]["volumeSnapshotRef"]["namespace"] == "backups");
  CHECK(items[1]["metadata"]["name"] == "monday");
  CHECK_FALSE(items[1]["spec"].contains("volumeSnapshotClassName"));
  CHECK_THAT(Print({"--snapshot", Wish("monday")}).errors, Contains("want SNAPSHOT=NAMESPACE/NAME"));
  CHECK_THAT(Print({"--snapshot", "a1-s1=db/monday"}).errors, Contains("there is no snapshot a1-s1"));
  CHECK_THAT(Print({"--snapshot-class", "none"}).errors, Contains("--snapshot-class none"));
  CHECK_THAT(Print({volume.value(), "--snapshot", Wish("db/monday")}).errors,
             Contains("not among those that are named"));
}

TEST_CASE_METHOD(SnapshotCluster, "of a volume that nobody knows, the snapshot is reserved and nobody's") {
  api.Remove(std::string("/api/v1/persistentvolumes/") + kVolumeName);
  REQUIRE(shell.array->DeleteVolume(volume).ok());
  const Json items = Items();
  REQUIRE(items.size() == 1);
  CHECK(items[0]["spec"]["volumeSnapshotRef"]["namespace"] == "lunkeeper-import");
  CHECK(items[0]["spec"]["volumeSnapshotRef"]["name"] == kContentName);
  CHECK_FALSE(items[0]["spec"].contains("sourceVolumeMode"));
}

// What a pod has written to a device is not to be mounted as a file system by the kernel of a node.
TEST_CASE_METHOD(SnapshotCluster, "a content says whether its volume was a device or had a file system") {
  const auto mode_of = [&](const VolumeId& source) {
    return Items(
        {shell.array->CreateSnapshot(source.value(), source)->id.value()})[0]["spec"]["sourceVolumeMode"];
  };
  CHECK(mode_of(Make(SpecOf("device", Access::kExclusive, VolumeMode::kBlock))) == "Block");
  VolumeSpec old = SpecOf("of-an-older-version");
  old.uses = {};
  const VolumeId unknown = Make(old);
  CHECK(mode_of(unknown).is_null());
  api.Put("/api/v1/persistentvolumes/old",
          {{"spec",
            {{"volumeMode", "Block"},
             {"csi", {{"driver", "csi.lunkeeper.io"}, {"volumeHandle", unknown.value()}}}}}});
  CHECK(mode_of(unknown) == "Block");
}

TEST_CASE_METHOD(SnapshotCluster, "a volume and its snapshots are brought back together") {
  api.Remove(std::string("/api/v1/persistentvolumes/") + kVolumeName);
  const Json items = Items();
  REQUIRE(items.size() == 4);
  CHECK(items[0]["kind"] == "PersistentVolume");
  CHECK(items[3]["metadata"]["namespace"] == "db");
  CHECK(Items({volume.value()}).size() == 2);
  CHECK(Items({snapshot.value()}).size() == 2);
}

TEST_CASE_METHOD(SnapshotCluster,
                 "what was applied is not printed again, and an import that broke off goes on") {
  const Json items = Items();
  SECTION("all of it") {
    ApplySnapshots(items);
    CHECK(Items().empty());
    CHECK_THAT(Print({snapshot.value()}).errors,
               Contains("has VolumeSnapshotContent " + std::string(kContentName) + " already"));
    CHECK_THAT(shell.Run({"import"}), Contains("and every snapshot its VolumeSnapshotContent"));
  }
  SECTION("the content alone") {
    ApplySnapshots(Json::array({items[0]}));
    CHECK(Items() == Json::array({items[1]}));
  }
  SECTION("the VolumeSnapshot alone") {
    ApplySnapshots(Json::array({items[1]}));
    CHECK(Items() == Json::array({items[0]}));
  }
  SECTION("the VolumeSnapshot was bound, and deleted since") {
    Json bound = items[0]["spec"];
    bound["volumeSnapshotRef"]["uid"] = "u";
    PutContent(kContentName, bound);
    CHECK(Items().empty());
  }
}

TEST_CASE_METHOD(SnapshotCluster,
                 "a snapshot of this cluster is not lost, and neither is one that is being made") {
  SECTION("it has a content that the snapshotter made") {
    PutContent("whatever", {{"source", {{"volumeHandle", volume.value()}}}},
               {{"snapshotHandle", snapshot.value()}});
  }
  SECTION("its content is there, and does not know its handle yet") {
    PutContent(kContentName, {{"source", {{"volumeHandle", volume.value()}}}});
    CHECK_THAT(Print({snapshot.value()}).errors, Contains("is being made"));
  }
  CHECK(Items().empty());
}

TEST_CASE_METHOD(SnapshotCluster, "names that others have are left to them") {
  SECTION("of the content: it is called after the snapshot") {
    api.Put(std::string(kSnapshotApi) + "volumesnapshotcontents/" + kContentName,
            {{"spec", {{"driver", "other.driver"}}}});
    CHECK(Items()[0]["metadata"]["name"] == snapshot.value());
  }
  SECTION("of the VolumeSnapshot: a person says another one") {
    PutVolumeSnapshot("db", kSnapshotName, {{"persistentVolumeClaimName", "data"}});
    const auto refused = Print();
    CHECK((refused.exit_code == 1 && refused.out.empty()));
    CHECK_THAT(refused.errors, Contains("is there already, and is not of snapshot " + snapshot.value()));
    CHECK(Items({"--snapshot", Wish("db/monday")}).size() == 2);
  }
  SECTION("of what another content is reserved for") {
    PutContent("other", {{"source", {{"snapshotHandle", "a1-s1"}}},
                         {"volumeSnapshotRef", {{"namespace", "db"}, {"name", "monday"}, {"uid", "u"}}}});
    CHECK_THAT(Print({"--snapshot", Wish("db/monday")}).errors, Contains("other is reserved for"));
  }
  SECTION("of one VolumeSnapshot for two snapshots") {
    const SnapshotId second = Take("second");
    CHECK_THAT(Print({"--snapshot", Wish("db/x"), "--snapshot", second.value() + "=db/x"}).errors,
               Contains("VolumeSnapshot db/x is for two snapshots"));
    const auto rest =
        Print({"--skip-unclear", "--snapshot", Wish("db/x"), "--snapshot", second.value() + "=db/x"});
    CHECK((rest.exit_code == 1 && rest.out.empty()));  // neither of the two gets it by chance
  }
  SECTION("of what the snapshot's own content is reserved for") {
    PutContent(kContentName, Items()[0]["spec"]);
    CHECK_THAT(Print({"--snapshot", Wish("db/monday")}).errors,
               Contains(std::string(kContentName) + " is reserved for VolumeSnapshot db/" + kSnapshotName));
    CHECK(Items({"--snapshot", Wish(std::string("db/") + kSnapshotName)}).size() == 1);
  }
}

TEST_CASE_METHOD(SnapshotCluster, "a VolumeSnapshot that waits for its content gets it") {
  SECTION("one that was bound is bound again by its uid") {
    PutVolumeSnapshot("db", "monday", {{"persistentVolumeClaimName", "data"}},
                      {{"boundVolumeSnapshotContentName", kContentName}});
    const Json items = Items();
    REQUIRE(items.size() == 1);
    CHECK(items[0]["spec"]["volumeSnapshotRef"]["name"] == "monday");
    CHECK_FALSE(items[0]["spec"]["volumeSnapshotRef"]["uid"].get<std::string>().empty());
  }
  // Anybody may write one that names the content.
  SECTION("but not from another namespace than the volume's claim, unless a person says so") {
    PutVolumeSnapshot("thief", "mine", {{"volumeSnapshotContentName", kContentName}});
    CHECK_THAT(Print().errors, Contains("could be for any of the VolumeSnapshots") && Contains("thief/mine"));
    CHECK(Items({"--snapshot", Wish("thief/mine")}).size() == 1);
  }
  SECTION("nor from any, while nobody knows the claim, unless it was bound to the content") {
    api.Remove(std::string("/api/v1/persistentvolumes/") + kVolumeName);
    REQUIRE(shell.array->DeleteVolume(volume).ok());
    PutVolumeSnapshot("thief", "mine", {{"volumeSnapshotContentName", kContentName}});
    CHECK_THAT(Print().errors, Contains("anybody may have written VolumeSnapshot thief/mine"));
    CHECK(Items({"--snapshot", Wish("thief/mine")}).size() == 1);
    PutVolumeSnapshot("thief", "mine", {{"volumeSnapshotContentName", kContentName}},
                      {{"boundVolumeSnapshotContentName", kContentName}});
    CHECK(Items()[0]["spec"]["volumeSnapshotRef"]["name"] == "mine");
  }
}

TEST_CASE_METHOD(SnapshotCluster, "a group's snapshots are imported each, and the group is named") {
  const auto group = shell.array->CreateGroup("groupsnapshot-1", {volume});
  REQUIRE(group.ok());
  const auto told = Print();
  CHECK(told.exit_code == 0);
  CHECK_THAT(told.errors, Contains(group->snapshots[0].id.value() + " belong to group " + group->id.value()));
  CHECK(Json::parse(told.out)["items"].size() == 4);
}

TEST_CASE_METHOD(SnapshotCluster, "a cluster without the kinds of snapshots gets its volumes all the same") {
  api.Forget(std::string(kSnapshotApi) + "volumesnapshotcontents");
  Make(SpecOf("another"));
  const auto told = Print();
  CHECK(told.exit_code == 0);
  CHECK_THAT(told.errors, Contains("the arrays have 1 snapshots, and none is imported"));
  CHECK(Json::parse(told.out)["items"].size() == 1);
  Apply(Json::parse(told.out)["items"]);
  CHECK(shell.RunFully({"import"}).out == "every volume has its PersistentVolume\n");
}

}  // namespace lunkeeper
