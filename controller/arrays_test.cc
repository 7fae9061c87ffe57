// One service, two arrays.
#include "devices/array/arrays.h"

#include <vector>

#include "absl/strings/str_cat.h"

#include "controller/group_service.h"
#include "controller/testing/controller_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;

// Behind one service.
struct ServiceOfTwoArrays : ControllerFixture, Arrays {
  FakeArray second{{.name = "a2"}};
  std::string default_array, removed;

  ServiceOfTwoArrays() { service = MakeControllerService(*this, {.max_volumes_per_node = 10}); }
  std::vector<NamedArray> ListArrays() override {
    const auto unowned = [](Array* one) { return std::shared_ptr<Array>(std::shared_ptr<void>(), one); };
    std::vector<NamedArray> both = {{"a1", unowned(&array), default_array == "a1"},
                                    {"a2", unowned(&second), default_array == "a2"}};
    std::erase_if(both, [this](const NamedArray& each) { return each.name == removed || removed == "all"; });
    return both;
  }
  absl::Status known;
  absl::Status CheckKnown() override { return known; }
  bool IsRemoved(const std::string& name) override { return !name.empty() && name == removed; }
};

}  // namespace

TEST_CASE("a volume goes to the array its class names, and one that is down is not in the others' way") {
  ServiceOfTwoArrays fixture;
  const auto with = [](csi::v1::CreateVolumeRequest request, const std::string& array) {
    (*request.mutable_parameters())["array"] = array;
    return request;
  };
  CHECK(fixture.Create(with(CreateRequest("v"), "a3")).error_code() == StatusCode::INVALID_ARGUMENT);
  fixture.default_array = "a1";
  CHECK(ArrayNameIn(fixture.MustCreate(CreateRequest("v"))) == "a1");
  const std::string volume = fixture.MustCreate(with(CreateRequest("w"), "a2"));
  CHECK(ArrayNameIn(volume) == "a2");
  CHECK(fixture.response.volume().accessible_topology(0).segments().count("array.lunkeeper.io/a2") == 1);

  csi::v1::CreateVolumeRequest clone = CreateRequest("clone");
  clone.mutable_volume_content_source()->mutable_volume()->set_volume_id(volume);
  CHECK(fixture.Create(with(clone, "a1")).error_code() == StatusCode::INVALID_ARGUMENT);
  CHECK(ArrayNameIn(fixture.MustCreate(clone)) == "a2");

  csi::v1::CreateVolumeRequest near_two = CreateRequest("near");
  (*near_two.mutable_accessibility_requirements()
        ->add_requisite()
        ->mutable_segments())["array.lunkeeper.io/a2"] = "reachable";
  CHECK(ArrayNameIn(fixture.MustCreate(near_two)) == "a2");
  CHECK(fixture.Create(with(near_two, "a1")).error_code() == StatusCode::RESOURCE_EXHAUSTED);

  fixture.array.FailWith(absl::UnavailableError("a1 is down"));
  CHECK(fixture.Publish(PublishRequest(volume, kNodeA)).ok());
  CHECK(fixture.Get(volume).status().published_node_ids_size() == 1);
  CHECK(fixture.Unpublish(volume, kNodeA).ok());
  CHECK(fixture.Delete(volume).ok());
}

// What is called invalid, the provisioner tries again only after minutes.
TEST_CASE("a creation on an array that was removed is tried again soon, and succeeds once it is back") {
  ServiceOfTwoArrays fixture;
  fixture.removed = "a2";
  csi::v1::CreateVolumeRequest request = CreateRequest("v");
  (*request.mutable_parameters())["array"] = "a2";
  CHECK(fixture.Create(request).error_code() == StatusCode::UNAVAILABLE);
  fixture.removed.clear();
  CHECK(ArrayNameIn(fixture.MustCreate(request)) == "a2");
}

// Of an array that may be removed no room is offered, and of one that is, none: an error would leave the
// scheduler with what was offered before.
TEST_CASE("capacity is that of arrays which are in use, also at the start") {
  ServiceOfTwoArrays fixture;
  csi::v1::GetCapacityRequest request;
  csi::v1::GetCapacityResponse capacity;
  const auto ask = [&] {
    capacity.Clear();
    return fixture.service->GetCapacity(nullptr, &request, &capacity).error_code();
  };
  fixture.known = absl::UnavailableError("nobody knows yet");
  CHECK(ask() == StatusCode::UNAVAILABLE);
  fixture.known = absl::OkStatus();
  REQUIRE(ask() == StatusCode::OK);
  CHECK(capacity.available_capacity() > 0);
  fixture.removed = "a2";
  (*request.mutable_parameters())["array"] = "a2";
  REQUIRE(ask() == StatusCode::OK);
  CHECK(capacity.available_capacity() == 0);
}

TEST_CASE("where all arrays are removed, a creation is tried again soon, and there is no capacity") {
  ServiceOfTwoArrays fixture;
  fixture.removed = "all";
  CHECK(fixture.Create(CreateRequest("v")).error_code() == StatusCode::RESOURCE_EXHAUSTED);
  const csi::v1::GetCapacityRequest request;
  csi::v1::GetCapacityResponse capacity;
  REQUIRE(fixture.service->GetCapacity(nullptr, &request, &capacity).ok());
  CHECK(capacity.available_capacity() == 0);
}

TEST_CASE("a group of snapshots on an array that was removed can be deleted, and its data stay there") {
  ServiceOfTwoArrays fixture;
  const auto groups = MakeGroupControllerService(fixture);
  csi::v1::CreateVolumeRequest request = CreateRequest("v");
  (*request.mutable_parameters())["array"] = "a2";
  csi::v1::CreateVolumeGroupSnapshotRequest make;
  make.set_name("g");
  make.add_source_volume_ids(fixture.MustCreate(request));
  csi::v1::CreateVolumeGroupSnapshotResponse made;
  REQUIRE(groups->CreateVolumeGroupSnapshot(nullptr, &make, &made).ok());
  const csi::v1::VolumeGroupSnapshot& group = made.group_snapshot();
  csi::v1::DeleteVolumeGroupSnapshotRequest erase;
  erase.set_group_snapshot_id(group.group_snapshot_id());
  erase.add_snapshot_ids(group.snapshots(0).snapshot_id());
  csi::v1::DeleteVolumeGroupSnapshotResponse erased;
  fixture.removed = "a2";
  CHECK(groups->DeleteVolumeGroupSnapshot(nullptr, &erase, &erased).ok());
  CHECK(fixture.second.GetGroup(SnapshotGroupId(group.group_snapshot_id())).ok());
}

// The answer to the first call was lost, and the orchestrator repeats it.
TEST_CASE("a repeated creation finds its volume, though it would go to another array now") {
  ServiceOfTwoArrays fixture;
  fixture.default_array = "a1";
  const std::string volume = fixture.MustCreate(CreateRequest("v"));
  fixture.default_array = "a2";
  CHECK(fixture.MustCreate(CreateRequest("v")) == volume);
  CHECK(fixture.response.volume().accessible_topology(0).segments().count("array.lunkeeper.io/a1") == 1);
  CHECK(fixture.second.ListVolumes("", 0)->items.empty());
  // As on one array: what is asked for has to be what is there.
  CHECK(fixture.Create(CreateRequest("v", 99 * kTestMiB)).error_code() == StatusCode::ALREADY_EXISTS);

  // The request leaves no choice, so this is another volume of the same name.
  csi::v1::CreateVolumeRequest by_class = CreateRequest("v"), near = CreateRequest("v");
  (*by_class.mutable_parameters())["array"] = "a2";
  const grpc::Status refused = fixture.Create(by_class);
  CHECK(refused.error_code() == StatusCode::ALREADY_EXISTS);
  CHECK_THAT(refused.error_message(), Catch::Contains(volume) && Catch::Contains("a2"));
  (*near.mutable_accessibility_requirements()->add_requisite()->mutable_segments())["array.lunkeeper.io/a2"] =
      "reachable";
  CHECK(fixture.Create(near).error_code() == StatusCode::ALREADY_EXISTS);
  CHECK(fixture.second.ListVolumes("", 0)->items.empty());

  CHECK(fixture.Delete(volume).ok());
  CHECK(ArrayNameIn(fixture.MustCreate(CreateRequest("v"))) == "a2");
}

TEST_CASE("a name that an array may have which is away is made elsewhere, and once") {
  ServiceOfTwoArrays fixture;
  fixture.default_array = "a1";
  const std::string first = fixture.MustCreate(CreateRequest("v"));
  fixture.default_array = "a2";
  fixture.array.FailWith(absl::AbortedError("it is being made"));
  CHECK(fixture.Create(CreateRequest("v")).error_code() == StatusCode::ABORTED);
  fixture.array.FailWith(absl::UnavailableError("a1 is down"));
  const std::string second = fixture.MustCreate(CreateRequest("v"));
  CHECK(ArrayNameIn(second) == "a2");
  fixture.array.FailWith(absl::OkStatus());
  CHECK(fixture.MustCreate(CreateRequest("v")) == second);
  CHECK(fixture.second.ListVolumes("", 0)->items.size() == 1);
}

TEST_CASE("a pool cannot be named, and the arrays that can are") {
  ServiceOfTwoArrays fixture;
  fixture.default_array = "a1";
  csi::v1::CreateVolumeRequest request = CreateRequest("v");
  (*request.mutable_parameters())["pool"] = "fast";
  const grpc::Status status = fixture.Create(request);
  CHECK(status.error_code() == StatusCode::INVALID_ARGUMENT);
  CHECK_THAT(status.error_message(), Catch::Contains("no pool fast") && Catch::Contains("a1, a2"));
}

TEST_CASE("capacity is that of the array that is meant") {
  ServiceOfTwoArrays fixture;
  fixture.default_array = "a1";
  REQUIRE(fixture.array
              .CreateVolume({.name = "thick",
                             .size_bytes = 1 << 30,
                             .provisioning = Provisioning::kThick,
                             .source_snapshot = {},
                             .source_volume = {}})
              .ok());
  const auto available = [&](const std::string& array, const std::string& place) {
    csi::v1::GetCapacityRequest request;
    if (!array.empty()) (*request.mutable_parameters())["array"] = array;
    if (!place.empty())
      (*request.mutable_accessible_topology()->mutable_segments())["array.lunkeeper.io/" + place] =
          "reachable";
    csi::v1::GetCapacityResponse got;
    REQUIRE(fixture.service->GetCapacity(nullptr, &request, &got).ok());
    return static_cast<uint64_t>(got.available_capacity());
  };
  const uint64_t one = fixture.array.GetCapacity()->available_bytes,
                 two = fixture.second.GetCapacity()->available_bytes;
  REQUIRE(one != two);
  CHECK(available("", "") == one);
  CHECK(available("a2", "") == two);
  CHECK(available("", "a2") == two);
  CHECK(available("a1", "a2") == 0);
}

TEST_CASE("without a default, a volume goes to the emptiest array that fits, and stays where it is") {
  ServiceOfTwoArrays fixture;
  const auto fill = [](FakeArray& array, uint64_t bytes) {
    REQUIRE(array
                .CreateVolume({.name = absl::StrCat("thick", bytes),
                               .size_bytes = bytes,
                               .provisioning = Provisioning::kThick,
                               .source_snapshot = {},
                               .source_volume = {}})
                .ok());
  };
  fill(fixture.array, 1 << 30);
  const std::string volume = fixture.MustCreate(CreateRequest("v"));
  CHECK(ArrayNameIn(volume) == "a2");
  fill(fixture.second, 2U << 30);
  CHECK(ArrayNameIn(fixture.MustCreate(CreateRequest("w"))) == "a1");
  // The answer was lost, and the other array is emptier now.
  CHECK(fixture.MustCreate(CreateRequest("v")) == volume);

  csi::v1::CreateVolumeRequest near_two = CreateRequest("near");
  for (const char* name : {"a2", "a1"})
    (*near_two.mutable_accessibility_requirements()->add_preferred()->mutable_segments())[absl::StrCat(
        "array.lunkeeper.io/", name)] = "reachable";
  CHECK(ArrayNameIn(fixture.MustCreate(near_two)) == "a2");

  fixture.second.FailWith(absl::UnavailableError("a2 is down"));
  CHECK(ArrayNameIn(fixture.MustCreate(CreateRequest("x"))) == "a1");
  fixture.array.FailWith(absl::UnavailableError("a1 is down"));
  CHECK(fixture.Create(CreateRequest("y")).error_code() == StatusCode::UNAVAILABLE);
}

TEST_CASE("capacity without a default is that of the emptiest array, by place") {
  ServiceOfTwoArrays fixture;
  REQUIRE(fixture.second
              .CreateVolume({.name = "thick",
                             .size_bytes = 1 << 30,
                             .provisioning = Provisioning::kThick,
                             .source_snapshot = {},
                             .source_volume = {}})
              .ok());
  const auto available = [&](const std::vector<std::string>& reached) {
    csi::v1::GetCapacityRequest request;
    for (const std::string& array : reached)
      (*request.mutable_accessible_topology()->mutable_segments())["array.lunkeeper.io/" + array] =
          "reachable";
    csi::v1::GetCapacityResponse got;
    REQUIRE(fixture.service->GetCapacity(nullptr, &request, &got).ok());
    return static_cast<uint64_t>(got.available_capacity());
  };
  const uint64_t one = fixture.array.GetCapacity()->creatable_bytes,
                 two = fixture.second.GetCapacity()->creatable_bytes;
  REQUIRE(one > two);
  CHECK(available({"a1", "a2"}) == one);
  CHECK(available({"a2"}) == two);
  fixture.array.FailWith(absl::UnavailableError("a1 is down"));
  CHECK(available({"a1", "a2"}) == two);
}

}  // namespace lunkeeper
