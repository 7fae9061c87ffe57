#include "devices/array/arrays.h"

#include <catch2/catch.hpp>
#include <set>

#include "devices/array/testing/fake_array.h"

namespace lunkeeper {
namespace {

const NodeId kNode("a.0000000000000001");

struct Fixture : Arrays {
  std::shared_ptr<FakeArray> one = std::make_shared<FakeArray>(FakeArrayOptions{.name = "one"});
  std::shared_ptr<FakeArray> two = std::make_shared<FakeArray>(FakeArrayOptions{.name = "two-v"});
  std::unique_ptr<Array> router = MakeArrayRouter(*this);
  std::vector<NamedArray> All() override { return {{"one", one, false}, {"two-v", two, true}}; }

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
  for (const char* other :
       {"", "v", "-v0123456789abcdef", "rack1-x0123456789abcdef", "rack1-v0123456789abcdeF",
        "rack1-v0123456789abcde", "rack1v0123456789abcdef", "vol-none"})
    CHECK(ArrayNameIn(other).empty());
}

TEST_CASE("a call about a volume goes to its array alone, also while another is down") {
  Fixture arrays;
  const VolumeId volume = arrays.Make(*arrays.two, "v");
  arrays.one->FailWith(absl::UnavailableError("one is down"));
  CHECK(arrays.router->GetVolume(volume).ok());
  CHECK(arrays.router->ExpandVolume(volume, 2 << 20).ok());
  const auto snapshot = arrays.router->CreateSnapshot("s", volume);
  REQUIRE(snapshot.ok());
  CHECK(arrays.router->GetSnapshot(snapshot->id).ok());
  CHECK(arrays.router->ListSnapshots(volume, "", 0)->items.size() == 1);
  CHECK(arrays.router->DeleteSnapshot(snapshot->id).ok());
  GrantRequest request;
  request.volume = volume;
  request.node = kNode;
  CHECK(arrays.router->Acquire(request, absl::ZeroDuration()).ok());
  CHECK(arrays.router->ListGrants({volume, {}})->size() == 1);
  CHECK(arrays.router->Release(volume, kNode, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(arrays.router->DeleteVolume(volume).ok());
  CHECK(absl::IsUnavailable(arrays.router->ListVolumes("", 0).status()));
  CHECK(absl::IsUnavailable(arrays.router->ListGrants({}).status()));
}

TEST_CASE("an id that is not ours is not there; one of an array that is not here may be") {
  Fixture arrays;
  CHECK(absl::IsNotFound(arrays.router->GetVolume(VolumeId("vol-none")).status()));
  CHECK(arrays.router->DeleteVolume(VolumeId("vol-none")).ok());
  CHECK(arrays.router->DeleteSnapshot(SnapshotId("snap-none")).ok());
  const absl::Status unknown = arrays.router->DeleteVolume(VolumeId("three-v0000000000000001"));
  CHECK(absl::IsFailedPrecondition(unknown));
  CHECK_THAT(std::string(unknown.message()), Catch::Contains("three") && Catch::Contains("one, two-v"));
}

TEST_CASE("a list goes through all arrays, page by page") {
  Fixture arrays;
  std::set<std::string> made;
  for (int i = 0; i < 3; ++i) {
    made.insert(arrays.Make(*arrays.one, std::to_string(i)).value());
    made.insert(arrays.Make(*arrays.two, std::to_string(i)).value());
  }
  for (const size_t limit : {0, 1, 2, 3, 7}) {
    std::set<std::string> seen;
    std::string token;
    do {
      const auto page = arrays.router->ListVolumes(token, limit);
      REQUIRE(page.ok());
      CHECK((limit == 0 || page->items.size() <= limit));
      CHECK_FALSE(page->items.empty());
      for (const Volume& volume : page->items) CHECK(seen.insert(volume.id.value()).second);
      token = page->next_token;
    } while (!token.empty());
    CHECK(seen == made);
  }
  for (const char* token : {"x", "one", "three/", "one/x"})
    CHECK(absl::IsAborted(arrays.router->ListVolumes(token, 0).status()));
  CHECK(arrays.router->ListSnapshots({}, "", 0)->items.empty());
}

TEST_CASE("a volume whose array nobody named goes to the default; terms are each array's own") {
  Fixture arrays;
  VolumeSpec spec;
  spec.name = "v";
  CHECK(ArrayNameIn(arrays.router->CreateVolume(spec)->id.value()) == "two-v");
  CHECK(absl::IsFailedPrecondition(arrays.router->BeginTerm("t").status()));
  CHECK(absl::IsFailedPrecondition(arrays.router->Fence(1, kNode, {}).status()));
  REQUIRE(arrays.two->Fence(*arrays.two->BeginTerm("t"), kNode, {}).ok());
  CHECK(arrays.router->ListFences()->size() == 1);

  const auto alone = MakeOneArray("one", arrays.one);
  CHECK(MakeArrayRouter(*alone)->BeginTerm("t").ok());
}

}  // namespace lunkeeper
