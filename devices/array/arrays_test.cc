#include "devices/array/array_router.h"

#include <catch2/catch.hpp>
#include <set>

#include "absl/time/clock.h"
#include "devices/array/remaining_arrays.h"
#include "devices/array/testing/fake_array.h"

namespace lunkeeper {
namespace {

const NodeId kNode("a.0000000000000001");

struct ArraysFixture : Arrays {
  std::shared_ptr<FakeArray> one = std::make_shared<FakeArray>(FakeArrayOptions{.name = "one"});
  std::shared_ptr<FakeArray> two = std::make_shared<FakeArray>(FakeArrayOptions{.name = "two-v"});
  std::unique_ptr<VolumeStore> volumes = MakeVolumeRouter(*this);
  std::unique_ptr<SnapshotGroups> groups = MakeGroupRouter(*this);
  std::unique_ptr<SnapshotBlocks> blocks = MakeBlockRouter(*this);
  std::unique_ptr<GrantStore> grants = MakeGrantRouter(*this);
  std::vector<NamedArray> ListArrays() override { return {{"one", one, false}, {"two-v", two, true}}; }

  static VolumeId Make(FakeArray& array, const std::string& name) {
    VolumeSpec spec;
    spec.name = name;
    spec.size_bytes = 1 << 20;
    return array.CreateVolume(spec)->id;
  }
};

}  // namespace

TEST_CASE("an id leads back to its array, whatever the array is called") {
  CHECK(ArrayNameIn("rack1-v0123456789abcdef") == "rack1");
  CHECK(ArrayNameIn("rack-v1-s0123456789abcdef") == "rack-v1");
  CHECK(ArrayNameIn("rack-1-g0123456789abcdef") == "rack-1");
  for (const char* other :
       {"", "v", "-v0123456789abcdef", "rack1-x0123456789abcdef", "rack1-v0123456789abcdeF",
        "rack1-v0123456789abcde", "rack1v0123456789abcdef", "vol-none"})
    CHECK(ArrayNameIn(other).empty());
}

TEST_CASE("blocks are listed by the array of both snapshots, and two arrays have none in common") {
  ArraysFixture arrays;
  const SnapshotId first = arrays.one->CreateSnapshot("s", arrays.Make(*arrays.one, "v"))->id;
  const VolumeId volume = arrays.Make(*arrays.two, "v");
  const SnapshotId second = arrays.two->CreateSnapshot("s", volume)->id;
  arrays.two->WriteBlock(volume, 4096);
  absl::SleepFor(absl::Milliseconds(1));
  const SnapshotId third = arrays.two->CreateSnapshot("t", volume)->id;
  const auto page = arrays.blocks->ListBlocks({.snapshot = third, .base = second});
  REQUIRE(page.ok());
  CHECK(page->ranges == std::vector<BlockRange>{{4096, 4096}});
  const auto refusal = [&](const SnapshotId& snapshot, const SnapshotId& base) {
    return arrays.blocks->ListBlocks({.snapshot = snapshot, .base = base}).status();
  };
  CHECK(absl::IsInvalidArgument(refusal(third, first)));
  CHECK(absl::IsNotFound(refusal(third, SnapshotId("one-s00000000000000ff"))));
  CHECK(absl::IsNotFound(refusal(SnapshotId("nothing"), first)));
  CHECK(absl::IsNotFound(refusal(third, SnapshotId("nothing"))));
}

TEST_CASE("a call about a volume goes to its array alone, also while another is down") {
  ArraysFixture arrays;
  const VolumeId volume = arrays.Make(*arrays.two, "v");
  arrays.one->FailWith(absl::UnavailableError("one is down"));
  CHECK(arrays.volumes->GetVolume(volume).ok());
  CHECK(arrays.volumes->ExpandVolume(volume, 2 << 20).ok());
  const auto snapshot = arrays.volumes->CreateSnapshot("s", volume);
  REQUIRE(snapshot.ok());
  CHECK(arrays.volumes->GetSnapshot(snapshot->id).ok());
  CHECK(arrays.volumes->ListSnapshots(volume, "", 0)->items.size() == 1);
  CHECK(arrays.volumes->DeleteSnapshot(snapshot->id).ok());
  GrantRequest request;
  request.volume = volume;
  request.node = kNode;
  CHECK(arrays.grants->AcquireGrant(request, absl::ZeroDuration()).ok());
  CHECK(arrays.grants->ListGrants({volume, {}})->size() == 1);
  CHECK(arrays.grants->ReleaseGrant(volume, kNode, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(arrays.volumes->DeleteVolume(volume).ok());
  CHECK(absl::IsUnavailable(arrays.volumes->ListVolumes("", 0).status()));
  CHECK(absl::IsUnavailable(arrays.grants->ListGrants({}).status()));
}

TEST_CASE("an id that is not ours is not there; one of an array that is not here may be") {
  ArraysFixture arrays;
  CHECK(absl::IsNotFound(arrays.volumes->GetVolume(VolumeId("vol-none")).status()));
  CHECK(arrays.volumes->DeleteVolume(VolumeId("vol-none")).ok());
  CHECK(arrays.volumes->DeleteSnapshot(SnapshotId("snap-none")).ok());
  const absl::Status unknown = arrays.volumes->DeleteVolume(VolumeId("three-v0000000000000001"));
  CHECK(absl::IsFailedPrecondition(unknown));
  CHECK_THAT(std::string(unknown.message()), Catch::Contains("three") && Catch::Contains("one, two-v"));
}

TEST_CASE("a list goes through all arrays, page by page") {
  ArraysFixture arrays;
  std::set<std::string> made;
  for (int i = 0; i < 3; ++i) {
    made.insert(arrays.Make(*arrays.one, std::to_string(i)).value());
    made.insert(arrays.Make(*arrays.two, std::to_string(i)).value());
  }
  for (const size_t limit : {0, 1, 2, 3, 7}) {
    std::set<std::string> seen;
    std::string token;
    do {
      const auto page = arrays.volumes->ListVolumes(token, limit);
      REQUIRE(page.ok());
      CHECK((limit == 0 || page->items.size() <= limit));
      CHECK_FALSE(page->items.empty());
      for (const Volume& volume : page->items) CHECK(seen.insert(volume.id.value()).second);
      token = page->next_token;
    } while (!token.empty());
    CHECK(seen == made);
  }
  for (const char* token : {"x", "one", "three/", "one/x"})
    CHECK(absl::IsAborted(arrays.volumes->ListVolumes(token, 0).status()));
  CHECK(arrays.volumes->ListSnapshots({}, "", 0)->items.empty());
}

TEST_CASE("a volume whose array nobody named goes to the default array") {
  ArraysFixture arrays;
  VolumeSpec spec;
  spec.name = "v";
  CHECK(ArrayNameIn(arrays.volumes->CreateVolume(spec)->id.value()) == "two-v");
}

TEST_CASE("a snapshot's name is one snapshot in all arrays, and so is a group's") {
  ArraysFixture arrays;
  const VolumeId a = ArraysFixture::Make(*arrays.one, "a"), b = ArraysFixture::Make(*arrays.two, "b");
  const auto snapshot = arrays.volumes->CreateSnapshot("s", a);
  const auto group = arrays.groups->CreateGroup("s", {a});  // another kind of name
  REQUIRE((snapshot.ok() && group.ok()));
  CHECK(arrays.volumes->CreateSnapshot("s", a)->id == snapshot->id);
  CHECK(arrays.groups->CreateGroup("s", {a})->id == group->id);
  const absl::Status refused = arrays.volumes->CreateSnapshot("s", b).status();
  CHECK(absl::IsAlreadyExists(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains(snapshot->id.value()));
  CHECK(absl::IsAlreadyExists(arrays.groups->CreateGroup("s", {b}).status()));
  CHECK(arrays.two->ListSnapshots({}, "", 0)->items.empty());

  // One that cannot be asked stops nobody, unless it says that it is making one.
  arrays.one->FailWith(absl::AbortedError("at work on it"));
  CHECK(absl::IsAborted(arrays.volumes->CreateSnapshot("s", b).status()));
  arrays.one->FailWith(absl::UnavailableError("one is down"));
  CHECK(arrays.volumes->CreateSnapshot("s", b).ok());
  CHECK(arrays.groups->CreateGroup("s", {b}).ok());
  // Two by now: each array's own counts where it is meant.
  arrays.one->FailWith(absl::OkStatus());
  CHECK(arrays.volumes->CreateSnapshot("s", a)->id == snapshot->id);
  CHECK(ArrayNameIn(arrays.volumes->CreateSnapshot("s", b)->id.value()) == "two-v");
}

TEST_CASE("a group is made on its volumes' array, and volumes of two arrays are none") {
  ArraysFixture arrays;
  const VolumeId a = ArraysFixture::Make(*arrays.one, "a"), b = ArraysFixture::Make(*arrays.one, "b");
  const VolumeId c = ArraysFixture::Make(*arrays.two, "c");
  arrays.two->FailWith(absl::UnavailableError("down"));
  const auto group = arrays.groups->CreateGroup("g", {a, b});
  REQUIRE(group.ok());
  CHECK(ArrayNameIn(group->id.value()) == "one");
  CHECK(arrays.groups->GetGroup(group->id).ok());
  const absl::Status refused = arrays.groups->CreateGroup("h", {a, c}).status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("one") && Catch::Contains("two-v"));
  CHECK(absl::IsNotFound(arrays.groups->CreateGroup("h", {a, VolumeId("no id of ours")}).status()));
  CHECK(absl::IsFailedPrecondition(
      arrays.groups->CreateGroup("h", {a, VolumeId("gone-v0123456789abcdef")}).status()));
  CHECK(arrays.groups->DeleteGroup(SnapshotGroupId("no id of ours")).ok());
  CHECK(arrays.groups->DeleteGroup(group->id).ok());
}

TEST_CASE("no array is used before it is known which were removed") {
  auto configured = std::make_shared<ArraysFixture>();
  RemainingArrays arrays(configured);
  const VolumeId id = configured->Make(*configured->one, "v");
  const auto volumes = MakeVolumeRouter(arrays);
  const auto grants = MakeGrantRouter(arrays);
  CHECK(absl::IsUnavailable(volumes->DeleteVolume(id)));
  CHECK(absl::IsUnavailable(volumes->GetVolume(id).status()));
  CHECK(absl::IsUnavailable(grants->AcquireGrant({id, kNode}, absl::ZeroDuration()).status()));
  CHECK(absl::IsUnavailable(grants->ReleaseGrant(id, kNode, GrantOwner::kNode, kAnyGeneration)));

  arrays.SetRemoved({"record", {"two"}, {}}, RealExecutor().SteadyNow());
  CHECK(arrays.ListCertainlyRemoved() == std::set<std::string>{"two"});
  CHECK(volumes->GetVolume(id).ok());
  // What was read long ago still counts, but ends nobody's I/O.
  arrays.SetRemoved({"record", {"two"}, {}}, RealExecutor().SteadyNow() - RemainingArrays::kCertainFor);
  CHECK(arrays.ListCertainlyRemoved().empty());
  CHECK(arrays.IsRemoved("two"));
  CHECK(volumes->GetVolume(id).ok());
}

TEST_CASE("an array that is being added back is not used yet, and no node ends I/O of it any more") {
  RemainingArrays arrays(std::make_shared<ArraysFixture>());
  arrays.SetRemoved({"record", {"one", "two"}, {"two"}}, RealExecutor().SteadyNow());
  CHECK(arrays.ListCertainlyRemoved() == std::set<std::string>{"one"});
  CHECK(arrays.IsRemoved("two"));
}

TEST_CASE("a record made anew adds no array back, and no node ends I/O for what it does not have") {
  RemainingArrays arrays(std::make_shared<ArraysFixture>());
  const auto read = [&](const char* record, const std::set<std::string>& removed) {
    arrays.SetRemoved({record, removed, {}}, RealExecutor().SteadyNow());
  };
  read("first", {"one", "two"});
  read("second", {"two"});
  CHECK(arrays.IsRemoved("one"));
  CHECK(arrays.ListLost() == std::set<std::string>{"one"});
  CHECK(arrays.ListCertainlyRemoved() == std::set<std::string>{"two"});
  read("third", {});
  CHECK(arrays.ListLost() == std::set<std::string>{"one", "two"});
  read("third", {"one"});
  read("third", {});
  CHECK_FALSE(arrays.IsRemoved("one"));
  CHECK(arrays.IsRemoved("two"));
}

TEST_CASE("a removed array is asked for nothing, and nothing waits for it") {
  auto owned = std::make_shared<ArraysFixture>();
  ArraysFixture& configured = *owned;
  RemainingArrays arrays(owned);
  const auto volumes = MakeVolumeRouter(arrays);
  const auto groups = MakeGroupRouter(arrays);
  const auto grants = MakeGrantRouter(arrays);
  const VolumeId gone = configured.Make(*configured.one, "v"), there = configured.Make(*configured.two, "v");
  const auto set_removed = [&](const std::set<std::string>& removed) {
    arrays.SetRemoved({"record", removed, {}}, RealExecutor().SteadyNow());
  };
  set_removed({});
  REQUIRE(grants->AcquireGrant({gone, kNode}, absl::ZeroDuration()).ok());
  configured.one->FailWith(absl::UnavailableError("one hangs"));
  CHECK_FALSE(grants->ListGrants({}).ok());

  set_removed({"one", "three"});
  CHECK(arrays.ListArrays().size() == 1);
  CHECK(grants->ListGrants({})->empty());
  CHECK(grants->ListGrants({gone, {}})->empty());
  CHECK(grants->ReleaseGrant(gone, kNode, GrantOwner::kNode, kAnyGeneration).ok());
  const absl::Status refused = grants->AcquireGrant({gone, kNode}, absl::ZeroDuration()).status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("add-array one"));
  CHECK(absl::IsFailedPrecondition(volumes->GetVolume(gone).status()));
  CHECK(volumes->DeleteVolume(gone).ok());
  CHECK(volumes->DeleteSnapshot(SnapshotId("one-s00000000000000ff")).ok());
  CHECK(groups->DeleteGroup(SnapshotGroupId("one-g00000000000000ff")).ok());
  CHECK(volumes->ListVolumes("", 0)->items.size() == 1);
  CHECK(volumes->GetVolume(there).ok());

  set_removed({"one", "two-v"});
  CHECK(volumes->ListVolumes("", 0)->items.empty());
  CHECK(absl::IsFailedPrecondition(volumes->GetCapacity().status()));

  configured.one->FailWith(absl::OkStatus());
  set_removed({});
  CHECK(volumes->GetVolume(gone).ok());  // nothing was changed on it
  CHECK(grants->ListGrants({})->size() == 1);
}

}  // namespace lunkeeper
