// `lunkeeper import`: which claim gets a volume back, and which would never be bound to it.

#include "plugin/testing/new_cluster.h"

namespace lunkeeper {

using Catch::Contains;
using kube::Json;

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

TEST_CASE("a volume goes back to the claim that it was made for, where nobody says otherwise") {
  NewCluster cluster;
  VolumeSpec spec = SpecOf(kVolumeName);
  spec.claim = "db/data-0";
  const std::string volume = cluster.Make(spec).value();
  CHECK_THAT(cluster.shell.Run({"import"}), Contains("db/data-0"));
  const Json items = cluster.Items();
  REQUIRE(items.size() == 2);
  CHECK(items[0]["spec"]["claimRef"]["name"] == "data-0");
  CHECK(items[1]["metadata"] == Json({{"namespace", "db"}, {"name", "data-0"}}));
  CHECK(cluster.Items({"--claim", volume + "=db/other"})[1]["metadata"]["name"] == "other");
  // Anybody could have written that, for somebody else's data.
  cluster.PutClaim("waiting", {{"storageClassName", "fast"}, {"volumeName", kVolumeName}});
  const auto told = cluster.Print();
  CHECK(told.out.empty());
  CHECK_THAT(told.errors, Contains("any of the claims db/data-0, db/waiting, which wait"));
  for (const char* claim : {"waiting", "data-0"})
    CHECK(cluster.Items({"--claim", absl::StrCat(volume, "=db/", claim)})[0]["spec"]["claimRef"]["name"] ==
          claim);
}

TEST_CASE("a volume is given to no claim that another one was made for, or has: a person says which") {
  NewCluster cluster;
  VolumeSpec spec = SpecOf(kVolumeName);
  spec.claim = "db/data-0";
  const std::string volume = cluster.Make(spec).value();
  SECTION("another lost volume was made for it, too") {
    spec.name = "pvc-later";
    const std::string later = cluster.Make(spec).value();
    CHECK(cluster.Items({later})[0]["spec"]["claimRef"]["namespace"] == "lunkeeper-import");
    CHECK(cluster.Items({"--claim", later + "=db/data-0"}).size() == 3);
  }
  SECTION("it was made anew before anybody looked") {
    cluster.PutClaim("data-0", {{"storageClassName", "fast"}, {"volumeName", "pvc-new"}});
  }
  SECTION("the operator gives it to another volume") {
    spec = SpecOf("pvc-later");
    CHECK(cluster.Items({"--claim", cluster.Make(spec).value() + "=db/data-0"}).size() == 3);
    return;
  }
  const auto told = cluster.Print({volume});
  CHECK(Json::parse(told.out)["items"][0]["spec"]["claimRef"]["namespace"] == "lunkeeper-import");
  CHECK_THAT(told.errors, Contains("volume " + volume + " was made for claim db/data-0, which has another"));
  CHECK_THAT(told.errors, Contains("--claim " + volume + "=NAMESPACE/NAME"));
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
  CHECK_THAT(told.errors,
             Contains("volume " + volume + " could be for any of the claims db/a-copy, db/data-0"));
  const Json items = cluster.Items({"--claim", volume + "=db/data-0"});
  REQUIRE(items.size() == 1);
  CHECK(items[0]["spec"]["claimRef"]["name"] == "data-0");
}

// As a creation leaves them that was given up on one array and begun anew on another.
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

TEST_CASE(
    "all volumes that are unclear are named at once, and the others are printed where they may be left out") {
  NewCluster cluster;
  cluster.PutClass("many", {{"array", "a1"}});
  const std::string waited = cluster.Make(SpecOf(kVolumeName)).value(),
                    fits = cluster.Make(SpecOf("pvc-2")).value(),
                    several = cluster.Make(SpecOf("pvc-3")).value();
  for (const char* claim : {"one", "two"})
    cluster.PutClaim(claim, {{"storageClassName", "fast"}, {"volumeName", kVolumeName}});
  cluster.PutClaim("three", {{"storageClassName", "fast"},
                             {"accessModes", kube::Json::array({"ReadWriteOnce"})},
                             {"volumeName", "pvc-2"}});
  const auto refused = cluster.Print();
  CHECK(refused.exit_code == 1);
  CHECK(refused.out.empty());
  const auto waits = Contains("volume " + waited + " could be for any of the claims db/one, db/two");
  const auto classes = Contains("volume " + several + " could be of the StorageClasses fast, many");
  CHECK_THAT(refused.errors, waits && classes && Contains("--skip-unclear: the others need 1 manifest"));
  const auto told = cluster.Print({"--skip-unclear"});
  CHECK(told.exit_code == 0);
  CHECK_THAT(told.errors, waits && classes);
  const Json items = Json::parse(told.out)["items"];
  REQUIRE(items.size() == 1);
  CHECK(items[0]["spec"]["csi"]["volumeHandle"] == fits);
}

TEST_CASE("a wrong command line is refused, whatever may be left out") {
  NewCluster cluster;
  const std::string volume = cluster.Make(SpecOf(kVolumeName)).value();
  const auto refused = cluster.Print({"--skip-unclear", "--claim", volume + "=no-namespace"});
  CHECK((refused.exit_code == 1 && refused.out.empty()));
  CHECK_THAT(refused.errors, Contains("want VOLUME=NAMESPACE/NAME"));
}

}  // namespace lunkeeper
