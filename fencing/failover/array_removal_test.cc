#include "fencing/failover/array_removal.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/testing/captured_log.h"
#include "base/testing/test_host.h"
#include "devices/array/array_router.h"
#include "fencing/failover/removal_record.h"
#include "fencing/failover/testing/failover_world.h"
#include "fencing/failover/volume_lock.h"

namespace lunkeeper::fencing {
namespace {

constexpr char kSpace[] = "lunkeeper";
constexpr char kConfigMaps[] = "/api/v1/configmaps";
constexpr char kRecord[] = "/api/v1/namespaces/lunkeeper/configmaps/lunkeeper-removed-arrays";

RemainingArrays& RemainingIn(FailoverWorld& world) {
  auto owned = std::make_unique<RemainingArrays>(MakeOneArray("fake", world.array));
  RemainingArrays& remaining = *owned;
  world.arrays = std::move(owned);
  world.removed_arrays = [&remaining] { return remaining.ListCertainlyRemoved(); };
  return remaining;
}

// A database on n1, whose device is there; one array, and its record.
struct RemovalRig {
  FailoverWorld world;
  RemainingArrays& remaining = RemainingIn(world);
  VolumeId volume = world.AddPod("db-0", "n1");
  Failover& failover = world.Start();
  std::unique_ptr<kube::KubeClient> client = world.api.Client();
  std::unique_ptr<RemovalWatch> watch;
  ArrayRemoval removal{remaining, failover, *client, kSpace};

  RemovalRig() {
    world.api.Put(kRecord, Json::object());
    watch = std::make_unique<RemovalWatch>(*client, kSpace, remaining);
    world.SetDevices("n1", {volume});
    REQUIRE(Comes([&] { return Has("n1", true) && HasLock(); }));
  }
  absl::StatusOr<std::vector<VolumeUse>> Remove(bool force, const std::string& array = "fake") {
    return removal.RemoveArray({.array = array, .force = force, .by = "me"}, InAWhile());
  }
  static absl::Time InAWhile() { return absl::Now() + absl::Seconds(20); }

  // Whether a use of the node is known, with a device or without.
  bool Has(const std::string& node, bool device) {
    const auto uses = failover.ListUses("fake");
    return uses.ok() && std::any_of(uses->begin(), uses->end(), [&](const VolumeUse& use) {
             return use.node == NodeName(node) && use.has_device == device;
           });
  }
  bool HasLock() {
    return !world.api.Get("/apis/lunkeeper.io/v1alpha1/volumelocks/" + volume.value()).is_null();
  }
  absl::Status Add() { return removal.AddArray("fake", InAWhile()); }
  std::string Entry() const { return TextAt(world.api.Get(kRecord), {"data", "fake"}); }
  bool IsRecorded() const { return TextAt(world.api.Get(kRecord), {"data", "fake"}) == "me"; }
};

}  // namespace

TEST_CASE("nothing is removed by a replica that has not listed everything yet, which may know of no pod") {
  FailoverWorld world;
  RemainingArrays& remaining = RemainingIn(world);
  world.AddPod("db-0", "n1");
  world.api.Put(kRecord, Json::object());
  world.api.Forget("/api/v1/pods");
  Failover& failover = world.Start();
  const auto client = world.api.Client();
  ArrayRemoval removal(remaining, failover, *client, kSpace);
  const auto remove = [&] {
    return removal.RemoveArray({.array = "fake", .force = false, .by = "me"}, RemovalRig::InAWhile())
        .status();
  };
  const absl::Status early = remove();
  CHECK(absl::IsUnavailable(early));
  CHECK_THAT(std::string(early.message()), Catch::Contains("pods"));
  CHECK(world.api.Get(kRecord).value("data", Json()).is_null());
  world.api.Forget("");
  CHECK(Comes([&] { return absl::IsFailedPrecondition(remove()); }));
}

TEST_CASE("an array that is used is removed by force alone, and nothing changes without") {
  RemovalRig rig;
  const absl::Status refused = rig.Remove(false).status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()),
             Catch::Contains(rig.volume.value() + " by node n1 (db/db-0)") && Catch::Contains("--force"));
  CHECK_FALSE(rig.IsRecorded());
  CHECK(rig.world.api.CountWrites("DELETE " + PodPath("db-0")) == 0);
}

TEST_CASE("a removed array has no pods, locks or grants left, and no node is waited for") {
  RemovalRig rig;
  rig.world.array->FailWith(absl::UnavailableError("the array hangs"));
  const auto uses = rig.Remove(true);
  REQUIRE(uses.ok());
  REQUIRE(uses->size() == 1);
  CHECK(uses->front().pods.front().first == PodId("db/db-0"));
  CHECK(rig.IsRecorded());
  CHECK(rig.world.api.CountWrites("DELETE " + PodPath("db-0")) == 1);
  REQUIRE(Comes([&] { return rig.failover.RemovedArrays().contains("fake"); }));
  CHECK(Comes([&] { return !rig.HasLock(); }));
  CHECK(Comes([&] { return Says(rig.failover, "array fake is removed", "node n1 has 1 volumes"); }));

  const auto grants = MakeGrantRouter(rig.remaining);
  CHECK(absl::IsFailedPrecondition(
      grants->AcquireGrant({rig.volume, FailoverWorld::IdOf("n2")}, absl::ZeroDuration()).status()));
  CHECK(grants->ListGrants({rig.volume, {}})->empty());
  CHECK(grants->ReleaseGrant(rig.volume, FailoverWorld::IdOf("n1"), GrantOwner::kNode, 1).ok());
  const auto volumes = MakeVolumeRouter(rig.remaining);
  CHECK(volumes->DeleteVolume(rig.volume).ok());
  CHECK(volumes->ListVolumes("", 0)->items.empty());

  rig.world.SetDevices("n1", {});
  CHECK(Comes([&] { return !rig.Has("n1", true); }));
  CHECK(Says(rig.failover, "array fake is removed", "no node has anything"));
}

TEST_CASE("what a removal did not come to do is done when it is asked for again, and the rest holds") {
  RemovalRig rig;
  rig.world.api.Refuse("DELETE " + PodPath("db-0"), 1);
  REQUIRE(rig.Remove(true).ok());
  CHECK(rig.world.api.CountWrites("DELETE " + PodPath("db-0")) == 0);
  CHECK(rig.IsRecorded());
  REQUIRE(Comes([&] { return rig.remaining.IsRemoved("fake"); }));
  // A controller that starts now knows only the record, and uses nothing before it has read that.
  rig.world.api.SetDown(true);
  RemainingArrays started(MakeOneArray("fake", rig.world.array));
  const RemovalWatch watch(*rig.client, kSpace, started);
  const auto volumes = MakeVolumeRouter(started);
  CHECK(absl::IsUnavailable(volumes->DeleteVolume(rig.volume)));
  rig.world.api.SetDown(false);
  REQUIRE(Comes([&] { return started.IsRemoved("fake"); }));
  CHECK(Comes([&] { return volumes->DeleteVolume(rig.volume).ok(); }));
  CHECK(rig.Remove(true).ok());
  CHECK(rig.world.api.CountWrites("DELETE " + PodPath("db-0")) == 1);
}

TEST_CASE("a controller that cannot read the record names no array to nodes: one may have been added back") {
  RemovalRig rig;
  REQUIRE(rig.Remove(true).ok());
  REQUIRE(Comes([&] { return rig.failover.RemovedArrays().contains("fake"); }));
  rig.world.api.SetDown(true);
  CHECK(Comes([&] { return rig.failover.RemovedArrays().empty(); }));
  CHECK(rig.remaining.IsRemoved("fake"));
  rig.world.api.SetDown(false);
  CHECK(Comes([&] { return rig.failover.RemovedArrays().contains("fake"); }));
}

TEST_CASE(
    "an array that is gone from the configuration can be removed while somebody has it; others are unknown") {
  RemovalRig rig;
  CHECK(absl::IsNotFound(rig.Remove(true, "rack9").status()));
  rig.world.api.Remove(kRecord);
  const absl::Status without = rig.Remove(true).status();
  CHECK(absl::IsFailedPrecondition(without));
  CHECK_THAT(std::string(without.message()), Catch::Contains("lunkeeper-removed-arrays"));
  CHECK(rig.world.api.CountWrites("DELETE " + PodPath("db-0")) == 0);
}

TEST_CASE("an array that is added back has no grants of nodes that lost their devices meanwhile") {
  RemovalRig rig;
  const VolumeId kept = rig.world.AddPod("db-1", "n3");
  REQUIRE(Comes([&] { return rig.Has("n3", false); }));
  REQUIRE(rig.Remove(true).ok());
  REQUIRE(Comes([&] { return rig.remaining.IsRemoved("fake"); }));
  rig.world.SetDevices("n1", {});
  rig.world.PowerOff("n3");
  REQUIRE(Comes([&] { return !rig.Has("n1", true) && !*rig.failover.Hears(FailoverWorld::IdOf("n3")); }));

  rig.world.array->FailWith(absl::UnavailableError("the array is away"));
  CHECK(absl::IsUnavailable(rig.removal.AddArray("fake", RemovalRig::InAWhile())));
  CHECK(rig.IsRecorded());
  rig.world.array->FailWith(absl::OkStatus());
  REQUIRE(rig.removal.AddArray("fake", RemovalRig::InAWhile()).ok());
  CHECK_FALSE(rig.IsRecorded());
  CHECK_FALSE(rig.world.Holds("n1", rig.volume));
  CHECK(rig.world.Holds("n3", kept));
  CHECK(Comes([&] { return rig.remaining.ListArrays().size() == 1; }));
  CHECK(absl::IsNotFound(rig.removal.AddArray("rack9", RemovalRig::InAWhile())));
}

// What a watch brings would be old: it has fallen silent before the removal.
TEST_CASE("an array is added back without left grants also where the removal has not been heard of") {
  RemovalRig rig;
  REQUIRE(Comes([&] { return rig.remaining.CheckKnown().ok(); }));
  rig.world.api.SilenceWatches(kConfigMaps);
  REQUIRE(rig.Remove(true).ok());
  rig.world.SetDevices("n1", {});
  REQUIRE(Comes([&] { return !rig.Has("n1", true); }));
  REQUIRE(rig.Add().ok());
  CHECK_FALSE(rig.IsRecorded());
  CHECK_FALSE(rig.world.Holds("n1", rig.volume));
}

TEST_CASE("once an array is added back, no replica names it to a node, nor one that hears nothing more") {
  RemovalRig rig;
  REQUIRE(rig.Remove(true).ok());
  REQUIRE(Comes([&] { return rig.remaining.ListCertainlyRemoved().contains("fake"); }));
  rig.watch.reset();
  REQUIRE(rig.Add().ok());
  CHECK(rig.remaining.ListCertainlyRemoved().empty());
}

TEST_CASE("a removal that comes while the array is added back is the last word") {
  RemovalRig rig;
  REQUIRE(rig.Remove(true).ok());
  rig.world.SetDevices("n1", {});
  absl::Status added;
  {
    const std::jthread adding([&] { added = rig.Add(); });
    REQUIRE(Comes([&] { return rig.Entry() != "me"; }));
    REQUIRE(rig.Remove(true).ok());
  }
  CHECK(absl::IsAborted(added));
  CHECK(rig.IsRecorded());
  CHECK(rig.Add().ok());
}

TEST_CASE("a record that is deleted, and made anew without an array, adds it back to no replica") {
  RemovalRig rig;
  REQUIRE(rig.Remove(true).ok());
  REQUIRE(Comes([&] { return rig.remaining.IsRemoved("fake"); }));
  rig.world.api.Remove(kRecord);
  rig.world.api.Put(kRecord, {{"data", {{"other", "me"}}}});
  REQUIRE(Comes([&] { return rig.remaining.IsRemoved("other"); }));
  CHECK(rig.remaining.IsRemoved("fake"));
  REQUIRE(rig.Add().ok());
  CHECK(Comes([&] { return !rig.remaining.IsRemoved("fake"); }));
}

TEST_CASE("a record that a tool writes anew adds no array back, and a person who takes its entry out does") {
  RemovalRig rig;
  REQUIRE(rig.Remove(true).ok());
  REQUIRE(Comes([&] { return rig.remaining.IsRemoved("fake"); }));
  // What the tool has, under the same uid, as `helm upgrade --force` puts it there.
  const std::string uid = TextAt(rig.world.api.Get(kRecord), {"metadata", "uid"});
  rig.world.api.Put(kRecord, {{"metadata", {{"uid", uid}}}, {"data", {{"other", "me"}}}});
  REQUIRE(Comes([&] { return rig.remaining.IsRemoved("other"); }));
  CHECK(rig.remaining.IsRemoved("fake"));
  REQUIRE(rig.Remove(true).ok());
  REQUIRE(Comes([&] { return rig.remaining.ListLost().empty(); }));
  Json edited = rig.world.api.Get(kRecord);
  edited["data"].erase("fake");
  rig.world.api.Put(kRecord, edited);
  CHECK(Comes([&] { return !rig.remaining.IsRemoved("fake"); }));
}

TEST_CASE("a replica that finds no record uses no array, and its log says why") {
  RemovalRig rig;
  rig.world.api.Remove(kRecord);
  RemainingArrays started(MakeOneArray("fake", rig.world.array));
  const testing::TempDir folder;
  const testing::CapturedLog log(folder / "log");
  const RemovalWatch watch(*rig.client, kSpace, started);
  CHECK(Comes([&] { return absl::StrContains(log.Text(), "there is no ConfigMap"); }));
  CHECK(absl::IsUnavailable(started.CheckKnown()));
  rig.world.api.Put(kRecord, Json::object());
  CHECK(Comes([&] { return started.CheckKnown().ok(); }));
}

TEST_CASE("a record that takes seconds to read is known, and nothing that cannot be undone is done by it") {
  FailoverWorld world;
  FakeApi slow([](const std::string&) {},
               [](kube::Exchange&) {
                 absl::SleepFor(RemainingArrays::kCertainFor);
                 return false;
               });
  slow.Put(kRecord, {{"data", {{"fake", "me"}}}});
  const auto client = slow.Client();
  RemainingArrays started(MakeOneArray("fake", world.array));
  const RemovalWatch watch(*client, kSpace, started);
  CHECK(Comes([&] { return started.CheckKnown().ok(); }));
  CHECK(started.IsRemoved("fake"));
  CHECK(started.ListCertainlyRemoved().empty());
}

TEST_CASE("a removal that the API server does not answer says that nobody knows whether it was stored") {
  RemovalRig rig;
  rig.world.api.SetDown(true);
  const absl::Status stored =
      rig.removal.RemoveArray({.array = "fake", .force = true, .by = "me"}, absl::Now() + absl::Seconds(2))
          .status();
  CHECK_THAT(std::string(stored.message()),
             Catch::Contains("is not known") && Catch::Contains("repeat the command"));
}

}  // namespace lunkeeper::fencing
