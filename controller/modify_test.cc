// Mutable parameters: of a VolumeAttributesClass, and of CreateVolume.
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "controller/testing/controller_fixture.h"
#include "controller/volume_creator.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;
using Parameters = std::map<std::string, std::string>;

struct ModifyFixture : ControllerFixture {
  grpc::Status Modify(const std::string& volume, const Parameters& parameters) {
    csi::v1::ControllerModifyVolumeRequest request;
    request.set_volume_id(volume);
    request.mutable_mutable_parameters()->insert(parameters.begin(), parameters.end());
    csi::v1::ControllerModifyVolumeResponse modified;
    return service->ControllerModifyVolume(nullptr, &request, &modified);
  }
  VolumeSpec SpecOf(const std::string& volume) { return array.GetVolume(VolumeId(volume))->spec; }
};

csi::v1::CreateVolumeRequest CreateWith(const Parameters& parameters) {
  csi::v1::CreateVolumeRequest request = CreateRequest("v");
  request.mutable_mutable_parameters()->insert(parameters.begin(), parameters.end());
  return request;
}

// Makes volumes, knows no limits, and is asked for nothing else.
class AgentWithoutLimits final : public VolumeStore {
 public:
  explicit AgentWithoutLimits(VolumeStore& inner) : inner_(inner) {}
  absl::StatusOr<Volume> CreateVolume(const VolumeSpec& spec) override {
    VolumeSpec known = spec;
    known.limits = {};
    return inner_.CreateVolume(known);
  }
  absl::StatusOr<Volume> ModifyVolume(const VolumeId&, const VolumeChange&) override { return Unknown(); }
  absl::Status DeleteVolume(const VolumeId&) override { return Unknown(); }
  absl::StatusOr<Volume> GetVolume(const VolumeId&) override { return Unknown(); }
  absl::StatusOr<Page<Volume>> ListVolumes(const std::string&, size_t) override { return Unknown(); }
  absl::StatusOr<Volume> ExpandVolume(const VolumeId&, uint64_t) override { return Unknown(); }
  absl::StatusOr<Snapshot> CreateSnapshot(const std::string&, const VolumeId&) override { return Unknown(); }
  absl::Status DeleteSnapshot(const SnapshotId&) override { return Unknown(); }
  absl::StatusOr<Snapshot> GetSnapshot(const SnapshotId&) override { return Unknown(); }
  absl::StatusOr<Page<Snapshot>> ListSnapshots(const VolumeId&, const std::string&, size_t) override {
    return Unknown();
  }
  absl::StatusOr<PoolCapacity> GetCapacity() override { return Unknown(); }

 private:
  static absl::Status Unknown() { return absl::UnimplementedError("an older version"); }
  VolumeStore& inner_;
};

}  // namespace

TEST_CASE_METHOD(ModifyFixture, "a volume's limits are set, changed and lifted, and the rest stays") {
  const std::string volume = MustCreate(CreateRequest("v"));
  REQUIRE(Modify(volume, {{"maxIops", "200"}, {"maxBandwidth", "8Mi"}}).ok());
  CHECK(SpecOf(volume).limits == VolumeLimits{.iops = 200, .bytes_per_second = 8 << 20, .version = 1});
  REQUIRE(Modify(volume, {{"maxIops", "500"}, {"csi.storage.k8s.io/pvc/name", "x"}}).ok());
  CHECK(SpecOf(volume).limits == VolumeLimits{.iops = 500, .bytes_per_second = 8 << 20, .version = 2});
  REQUIRE(Modify(volume, {{"maxIops", "500"}}).ok());
  CHECK(SpecOf(volume).limits.version == 2);
  REQUIRE(Modify(volume, {{"maxIops", "unlimited"}, {"maxBandwidth", "unlimited"}}).ok());
  CHECK(SpecOf(volume).limits == VolumeLimits{.iops = 0, .bytes_per_second = 0, .version = 3});
}

TEST_CASE_METHOD(ModifyFixture, "a volume is made with limits, which go before the class's durability") {
  csi::v1::CreateVolumeRequest request = CreateWith({{"maxIops", "200"}, {"durability", "sync"}});
  (*request.mutable_parameters())["durability"] = "cached";
  const std::string volume = MustCreate(request);
  CHECK(SpecOf(volume).limits == VolumeLimits{.iops = 200, .bytes_per_second = 0, .version = 1});
  CHECK(SpecOf(volume).durability == Durability::kSync);
  CHECK(MustCreate(request) == volume);
  CHECK(SpecOf(volume).limits.version == 1);
}

// The claim's class was changed while its volume was being made.
TEST_CASE_METHOD(ModifyFixture, "a repeated CreateVolume with another limit has that one") {
  const std::string volume = MustCreate(CreateWith({{"maxIops", "200"}}));
  CHECK(MustCreate(CreateWith({{"maxIops", "400"}})) == volume);
  CHECK(SpecOf(volume).limits.iops == 400);
  CHECK(MustCreate(CreateWith({})) == volume);  // names none: it keeps what it has
  CHECK(SpecOf(volume).limits.iops == 400);
}

TEST_CASE_METHOD(ModifyFixture, "a repeated CreateVolume finds a volume whose durability was modified") {
  const std::string volume = MustCreate(CreateRequest("v"));
  REQUIRE(Modify(volume, {{"durability", "sync"}}).ok());
  CHECK(MustCreate(CreateRequest("v")) == volume);  // names none: it keeps what it has
  CHECK(SpecOf(volume).durability == Durability::kSync);
  CHECK(MustCreate(CreateWith({{"durability", "cached"}})) == volume);
  CHECK(SpecOf(volume).durability == Durability::kCached);
  CHECK(MustCreate(CreateWith({{"durability", "sync"}})) == volume);
  CHECK(SpecOf(volume).durability == Durability::kSync);
}

// Its answer would be a volume that loses what its class promises.
TEST_CASE_METHOD(ModifyFixture, "a cached volume is not the one that a class with sync asks for") {
  MustCreate(CreateRequest("v"));
  csi::v1::CreateVolumeRequest request = CreateRequest("v");
  (*request.mutable_parameters())["durability"] = "sync";
  CHECK(Create(request).error_code() == StatusCode::ALREADY_EXISTS);
}

TEST_CASE_METHOD(ModifyFixture, "durability changes only while no node has the volume, and says who has it") {
  const std::string volume = MustCreate(CreateRequest("v"));
  REQUIRE(Publish(PublishRequest(volume, kNodeA)).ok());
  const grpc::Status refused = Modify(volume, {{"durability", "sync"}, {"maxIops", "200"}});
  CHECK(refused.error_code() == StatusCode::FAILED_PRECONDITION);
  CHECK_THAT(refused.error_message(), Catch::Contains(kNodeA));
  CHECK(SpecOf(volume).limits.iops == 0);
  CHECK(Modify(volume, {{"durability", "cached"}, {"maxIops", "200"}}).ok());
  REQUIRE(Unpublish(volume, kNodeA).ok());
  CHECK(Modify(volume, {{"durability", "sync"}}).ok());
  CHECK(SpecOf(volume).durability == Durability::kSync);
}

TEST_CASE_METHOD(ModifyFixture, "a volume has its class's digests, and a grant carries them to the node") {
  csi::v1::CreateVolumeRequest request = CreateRequest("v");
  (*request.mutable_parameters())["digests"] = "header";
  const std::string volume = MustCreate(request);
  CHECK(SpecOf(volume).digests == Digests::kHeader);
  REQUIRE(Publish(PublishRequest(volume, kNodeA)).ok());
  CHECK(published.publish_context().at("digests") == "header");
  CHECK(Modify(volume, {{"digests", "all"}}).error_code() == StatusCode::FAILED_PRECONDITION);
  REQUIRE(Unpublish(volume, kNodeA).ok());
  REQUIRE(Modify(volume, {{"digests", "all"}}).ok());
  CHECK(SpecOf(volume).digests == Digests::kAll);
  CHECK(MustCreate(request) == volume);  // more than it asks for
  CHECK(SpecOf(volume).digests == Digests::kAll);
}

// An agent that knew no digests made it, and has been upgraded since.
TEST_CASE_METHOD(ModifyFixture,
                 "a repeated CreateVolume gives the volume the digests that its class asks for") {
  const std::string volume = MustCreate(CreateRequest("v"));
  csi::v1::CreateVolumeRequest request = CreateRequest("v");
  (*request.mutable_parameters())["digests"] = "all";
  REQUIRE(Publish(PublishRequest(volume, kNodeA)).ok());
  CHECK(Create(request).error_code() == StatusCode::FAILED_PRECONDITION);
  CHECK(SpecOf(volume).digests == Digests::kNone);
  REQUIRE(Unpublish(volume, kNodeA).ok());
  CHECK(MustCreate(request) == volume);
  CHECK(SpecOf(volume).digests == Digests::kAll);
}

// The provisioner forgets a volume whose creation has failed for good.
TEST_CASE_METHOD(ModifyFixture, "a volume that its older agent makes without limits is not given up") {
  AgentWithoutLimits agent(array);
  VolumeCreator creator(*arrays, array);
  VolumeSpec spec;
  spec.name = "v";
  const auto made = creator.CreateOnce(agent, spec, {.max_iops = 200}, nullptr);
  CHECK(absl::IsUnavailable(made.status()));
  CHECK(array.ListVolumes("", 0)->items.size() == 1);
}

TEST_CASE_METHOD(ModifyFixture, "a grant carries the limits to the node") {
  const std::string volume = MustCreate(CreateWith({{"maxIops", "200"}, {"maxBandwidth", "8388608"}}));
  REQUIRE(Publish(PublishRequest(volume, kNodeA)).ok());
  CHECK(published.publish_context().at("maxIops") == "200");
  CHECK(published.publish_context().at("maxBandwidth") == "8388608");
  CHECK(published.publish_context().at("limitsVersion") == "1");
}

TEST_CASE_METHOD(ModifyFixture, "what a mutable parameter may be is said in the error, and nothing changes") {
  const std::string volume = MustCreate(CreateRequest("v"));
  const auto [key, value, allowed] = GENERATE(table<std::string, std::string, std::string>({
      {"maxIops", "", "from 100 to"},
      {"maxIops", "0", "or unlimited"},
      {"maxIops", "99", "from 100 to"},
      {"maxIops", "-200", "from 100 to"},
      {"maxIops", "+200", "from 100 to"},
      {"maxIops", "200.5", "from 100 to"},
      {"maxIops", " 200", "from 100 to"},
      {"maxIops", "1000000001", "to 1000000000"},
      {"maxIops", "99999999999999999999999", "from 100 to"},
      {"maxIops", "200Mi", "from 100 to"},
      {"maxIops", "Unlimited", "or unlimited"},
      {"maxBandwidth", "4194303", "from 4Mi to 1Ti"},
      {"maxBandwidth", "3Mi", "from 4Mi to 1Ti"},
      {"maxBandwidth", "2Ti", "from 4Mi to 1Ti"},
      {"maxBandwidth", "99999999999Ti", "from 4Mi to 1Ti"},
      {"maxBandwidth", "Mi", "from 4Mi to 1Ti"},
      {"maxBandwidth", "i", "from 4Mi to 1Ti"},
      {"maxBandwidth", "10M", "Ki, Mi, Gi or Ti"},
      {"maxBandwidth", "10Pi", "Ki, Mi, Gi or Ti"},
      {"maxBandwidth", "-10Mi", "from 4Mi to 1Ti"},
      {"durability", "writeback", "cached or sync"},
      {"durability", "unlimited", "cached or sync"},
      {"digests", "header,data", "none, header or all"},
      {"maxiops", "200", "there are maxIops, maxBandwidth, durability"},
      {"fsType", "xfs", "there are maxIops, maxBandwidth, durability"},
  }));
  INFO(key << "=" << value);
  const grpc::Status status = Modify(volume, {{key, value}, {"maxIops", key == "maxIops" ? value : "200"}});
  CHECK(status.error_code() == StatusCode::INVALID_ARGUMENT);
  CHECK_THAT(status.error_message(), Catch::Contains(allowed) && Catch::Contains(key));
  CHECK(SpecOf(volume).limits == VolumeLimits());
  const grpc::Status created = Create(CreateWith({{key, value}}));
  CHECK(created.error_code() == StatusCode::INVALID_ARGUMENT);
}

TEST_CASE_METHOD(ModifyFixture, "the mutable parameters of a volume are confirmed, or not") {
  const std::string volume = MustCreate(CreateWith({{"maxIops", "200"}}));
  csi::v1::ValidateVolumeCapabilitiesRequest request;
  request.set_volume_id(volume);
  *request.add_volume_capabilities() = Mount();
  (*request.mutable_mutable_parameters())["maxIops"] = "200";
  csi::v1::ValidateVolumeCapabilitiesResponse answer;
  REQUIRE(service->ValidateVolumeCapabilities(nullptr, &request, &answer).ok());
  CHECK(answer.confirmed().mutable_parameters().at("maxIops") == "200");
  answer.Clear();
  (*request.mutable_mutable_parameters())["maxIops"] = "300";
  REQUIRE(service->ValidateVolumeCapabilities(nullptr, &request, &answer).ok());
  CHECK_FALSE(answer.has_confirmed());
}

}  // namespace lunkeeper
