// What a volume was made for is remembered, and holds for every later request.

#include "controller/testing/controller_fixture.h"

namespace lunkeeper {

using grpc::StatusCode;

TEST_CASE("a volume is used for what it was made for, and not for more") {
  ControllerFixture fixture;
  const auto readers = Mount(Mode::MULTI_NODE_READER_ONLY);
  const auto block = Block(), writers = Block(Mode::MULTI_NODE_MULTI_WRITER);
  struct Row {
    std::vector<csi::v1::VolumeCapability> made_for;
    csi::v1::VolumeCapability asked;
    bool fits;
  };
  const Row rows[] = {
      {{Mount()}, Mount(), true},
      {{Mount()}, Mount(Mode::SINGLE_NODE_SINGLE_WRITER), true},
      {{Mount()}, readers, false},
      {{Mount()}, block, false},
      {{Mount()}, writers, false},
      {{readers}, readers, true},
      {{readers}, Mount(), false},
      {{readers}, writers, false},
      {{block}, Mount(), false},
      {{writers}, writers, true},
      {{writers}, block, true},
      {{Mount(), readers}, readers, true},
      {{readers, writers}, Mount(), false},
  };
  int number = 0;
  for (const Row& row : rows) {
    CAPTURE(++number);
    const std::string id = fixture.MustCreate(CreateFor("v" + std::to_string(number), row.made_for));
    auto request = PublishRequest(id, kNodeA);
    *request.mutable_volume_capability() = row.asked;
    const grpc::Status published = fixture.Publish(request);
    CHECK(published.error_code() == (row.fits ? StatusCode::OK : StatusCode::FAILED_PRECONDITION));
    if (!row.fits) CHECK_THAT(published.error_message(), Catch::Contains("made for"));
    CHECK(fixture.Confirms(id, row.asked) == row.fits);
  }
}

TEST_CASE("a volume for one node is no second node's, not even to read") {
  ControllerFixture fixture;
  const std::string id = fixture.MustCreate(CreateRequest("v"));
  auto request = PublishRequest(id, kNodeA);
  request.set_readonly(true);
  REQUIRE(fixture.Publish(request).ok());
  request.set_node_id(kNodeB);
  const grpc::Status refused = fixture.Publish(request);
  CHECK(refused.error_code() == StatusCode::FAILED_PRECONDITION);
  CHECK_THAT(refused.error_message(), Catch::Contains(kNodeA));
}

TEST_CASE("a repeated creation for other capabilities, or another file system, is another volume's") {
  ControllerFixture fixture;
  auto mount = Mount();
  mount.mutable_mount()->set_fs_type("xfs");
  const std::string id = fixture.MustCreate(CreateFor("v", {mount, Mount(Mode::MULTI_NODE_READER_ONLY)}));
  CHECK(fixture.MustCreate(CreateFor("v", {mount})) == id);
  CHECK(fixture.Create(CreateFor("v", {mount, Block()})).error_code() == StatusCode::ALREADY_EXISTS);
  auto other = mount;
  other.mutable_mount()->set_fs_type("ext4");
  CHECK(fixture.Create(CreateFor("v", {other})).error_code() == StatusCode::ALREADY_EXISTS);
  CHECK(fixture.Create(CreateFor("w", {mount, other})).error_code() == StatusCode::INVALID_ARGUMENT);
  CHECK(fixture.Confirms(id, mount));
  CHECK_FALSE(fixture.Confirms(id, other));

  auto by_class = CreateRequest("x");
  (*by_class.mutable_parameters())["fsType"] = "xfs";
  fixture.MustCreate(by_class);
  (*by_class.mutable_parameters())["fsType"] = "ext4";
  CHECK(fixture.Create(by_class).error_code() == StatusCode::ALREADY_EXISTS);
}

// mkfs.xfs makes none below 300 MiB: the claim would be bound, and its pod would never start.
TEST_CASE("a volume for XFS is as large as an XFS has to be") {
  ControllerFixture fixture;
  auto by_class = CreateRequest("class", 64 * kTestMiB);
  (*by_class.mutable_parameters())["fsType"] = "xfs";
  auto by_capability = CreateRequest("capability", 64 * kTestMiB);
  by_capability.mutable_volume_capabilities(0)->mutable_mount()->set_fs_type("xfs");
  for (auto& request : {by_class, by_capability}) {
    const std::string id = fixture.MustCreate(request);
    CHECK(fixture.response.volume().capacity_bytes() == 300 * kTestMiB);
    CHECK(fixture.MustCreate(request) == id);
    auto limited = request;
    limited.set_name("limited");
    limited.mutable_capacity_range()->set_limit_bytes(200 * kTestMiB);
    const grpc::Status refused = fixture.Create(limited);
    CHECK(refused.error_code() == StatusCode::OUT_OF_RANGE);
    CHECK_THAT(refused.error_message(), Catch::Contains("XFS"));
  }
  auto raw = CreateFor("raw", {Block()});
  (*raw.mutable_parameters())["fsType"] = "xfs";
  fixture.MustCreate(raw);
  CHECK(fixture.response.volume().capacity_bytes() == 16 * kTestMiB);
  auto clone = CreateRequest("clone");
  clone.clear_capacity_range();
  clone.mutable_volume_capabilities(0)->mutable_mount()->set_fs_type("xfs");
  clone.mutable_volume_content_source()->mutable_volume()->set_volume_id(
      fixture.MustCreate(CreateRequest("small")));
  fixture.MustCreate(clone);
  CHECK(fixture.response.volume().capacity_bytes() == 300 * kTestMiB);
  by_class.set_name("any size");
  by_class.mutable_capacity_range()->set_required_bytes(0);
  by_class.mutable_capacity_range()->set_limit_bytes(int64_t{1} << 40);
  fixture.MustCreate(by_class);
  CHECK(fixture.response.volume().capacity_bytes() == 1024 * kTestMiB);
}

// Kubernetes allows 63 and 253 bytes, and an agent refuses a text of more than 256.
TEST_CASE("a claim whose names are too long for an agent is left out") {
  ControllerFixture fixture;
  for (const auto& [space, bytes] : {std::pair(std::string("db"), 256U), std::pair(std::string("dbs"), 0U)}) {
    auto request = CreateRequest("for-" + space);
    auto& parameters = *request.mutable_parameters();
    parameters["csi.storage.k8s.io/pvc/namespace"] = space;
    parameters["csi.storage.k8s.io/pvc/name"] = std::string(253, 'x');
    CHECK(fixture.array.GetVolume(VolumeId(fixture.MustCreate(request)))->spec.claim.size() == bytes);
  }
}

TEST_CASE("a volume from before this was kept takes on the first use that writes") {
  ControllerFixture fixture;
  VolumeSpec spec;
  spec.name = "old";
  spec.size_bytes = 16 << 20;
  const std::string id = fixture.array.CreateVolume(spec)->id.value();
  CHECK(fixture.MustCreate(CreateRequest("old")) == id);
  auto read = PublishRequest(id, kNodeA);
  read.set_readonly(true);
  REQUIRE(fixture.Publish(read).ok());
  REQUIRE(fixture.Unpublish(id, kNodeA).ok());
  CHECK(fixture.Confirms(id, Block(Mode::MULTI_NODE_MULTI_WRITER)));
  REQUIRE(fixture.Publish(PublishRequest(id, kNodeA)).ok());
  REQUIRE(fixture.Unpublish(id, kNodeA).ok());
  CHECK_FALSE(fixture.Confirms(id, Block(Mode::MULTI_NODE_MULTI_WRITER)));
  auto shared = PublishRequest(id, kNodeB);
  *shared.mutable_volume_capability() = Block(Mode::MULTI_NODE_MULTI_WRITER);
  CHECK(fixture.Publish(shared).error_code() == StatusCode::FAILED_PRECONDITION);
  CHECK(fixture.Publish(PublishRequest(id, kNodeB)).ok());
  CHECK(fixture.MustCreate(CreateRequest("old")) == id);
}

}  // namespace lunkeeper
