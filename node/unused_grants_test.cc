// The node releases grants that nothing on it uses, and keeps the others.

#include <atomic>
#include <functional>
#include <thread>

#include "node/testing/node_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;

// The source of grants of a node whose connection fails now and then.
class Flaky final : public GrantSource {
 public:
  explicit Flaky(GrantSource& inner) : inner_(inner) {}
  absl::StatusOr<Grant> Acquire(const VolumeId& volume, const WantedUse& use, absl::Duration wait) override {
    if (before_acquire) before_acquire();
    absl::StatusOr<Grant> grant = inner_.Acquire(volume, use, wait);
    if (lose_answers) return absl::UnavailableError("the answer was lost");
    return grant;
  }
  absl::Status Release(const VolumeId& volume, Generation generation, absl::Time deadline) override {
    return inner_.Release(volume, generation, deadline);
  }
  absl::StatusOr<std::vector<HeldGrant>> Held(const VolumeId& volume, absl::Time deadline) override {
    if (cut_off) return absl::UnavailableError("no controller answers");
    return inner_.Held(volume, deadline);
  }

  std::function<void()> before_acquire;
  std::atomic<bool> lose_answers = false, cut_off = false;

 private:
  GrantSource& inner_;
};

struct FlakyFixture : NodeFixture {
  Flaky flaky{*grants};
  FlakyFixture() { service = MakeService(&flaky); }
  ~FlakyFixture() { service.reset(); }
};

}  // namespace

TEST_CASE("a grant that a killed plugin had taken is given back when the plugin is there again") {
  FlakyFixture f;
  REQUIRE(f.flaky.Acquire(f.volume, {Access::kExclusive}, absl::ZeroDuration()).ok());
  f.service->ReturnUnusedGrants();
  CHECK_FALSE(f.Granted());
}

TEST_CASE("a loss of a stay that ended without its unstage is not told by a later one") {
  FlakyFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  f.mounter.FailNext("WriteBack", absl::DataLossError("Input/output error"));
  f.flaky.cut_off = true;
  REQUIRE(f.Unstage() == StatusCode::UNAVAILABLE);
  f.flaky.cut_off = false;
  f.service->ReturnUnusedGrants();
  REQUIRE_FALSE(f.Granted());
  REQUIRE(f.Stage() == StatusCode::OK);
  CHECK(f.Unstage() == StatusCode::OK);
}

// The publish is given another grant, which nothing here uses.
TEST_CASE("a raw device whose grant ends during its publish is not published, and keeps no other node out") {
  FlakyFixture f;
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER, true);
  REQUIRE(f.Stage() == StatusCode::OK);
  f.flaky.before_acquire = [&] {
    REQUIRE(f.array.ReleaseGrant(f.volume, f.node, GrantOwner::kNode, kAnyGeneration).ok());
  };
  CHECK(f.Publish() == StatusCode::FAILED_PRECONDITION);
  CHECK(f.MountCount() == 0);
  SECTION("at once") {}
  SECTION("also where the plugin was killed there") {
    REQUIRE(f.grants->Acquire(f.volume, {Access::kExclusive, VolumeMode::kBlock}, absl::ZeroDuration()).ok());
    f.service = f.MakeService(&f.flaky);
    f.service->ReturnUnusedGrants();
  }
  CHECK_FALSE(f.Granted());
  CHECK(f.Attached());
}

TEST_CASE("a grant whose answer was lost is given back although nobody asks again") {
  FlakyFixture f;
  f.flaky.lose_answers = true;
  CHECK(f.Stage() == StatusCode::UNAVAILABLE);
  CHECK(f.Granted());
  f.service->ReturnUnusedGrants();
  CHECK_FALSE(f.Granted());
}

TEST_CASE("grants in use, and those that the orchestrator took, stay") {
  FlakyFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  const VolumeId published = f.CreateVolume("published");
  REQUIRE(f.array
              .AcquireGrant({published, f.node, Access::kExclusive, GrantOwner::kOrchestrator},
                            absl::ZeroDuration())
              .ok());
  f.service->ReturnUnusedGrants();
  CHECK(f.array.ListGrants({})->size() == 2);
  CHECK(f.Publish() == StatusCode::OK);
}

// As after `rm -rf /run/lunkeeper` and a start of both: the old data path serves on, by its grant.
TEST_CASE("a grant stays while a device that the data path does not know is mounted") {
  FlakyFixture f;
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER, /*block=*/GENERATE(false, true));
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  f.initiator.Replace();
  f.service = f.MakeService(&f.flaky);
  f.service->ReturnUnusedGrants();
  CHECK(f.Granted());
  REQUIRE(f.Unpublish() == StatusCode::OK);
  CHECK(f.Unstage() == StatusCode::OK);
  CHECK(f.IsClean());
}

namespace {

// With kubelet's paths, and the old data path out of reach.
struct ReplacedFixture : NodeFixture {
  const bool block = GENERATE(false, true);
  const std::string staged =
      root / (block ? "csi/volumeDevices/staging/pvc-1" : "csi/csi.lunkeeper.io/0af1/globalmount");
  const std::string published = root / (block ? "csi/volumeDevices/publish/pvc-1" : "pods");
  ReplacedFixture() {
    std::filesystem::create_directories(staged);
    std::filesystem::create_directories(published);
    capability = Capability(AccessMode::SINGLE_NODE_MULTI_WRITER, block);
    REQUIRE(StageThere() == StatusCode::OK);
    REQUIRE(PublishTo("pod-1") == StatusCode::OK);
    initiator.Replace();
    NodeServiceOptions options{.node = node, .stages_for_publish = true, .topology = {}};
    service = std::make_unique<NodeService>(options, initiator, initiator, filesystem, mounter, grants.get());
  }
  StatusCode StageThere() {
    auto request = StageRequest();
    request.set_staging_target_path(staged);
    return NodeFixture::Stage(request);
  }
  StatusCode PublishTo(const std::string& pod) {
    auto request = PublishRequest();
    request.set_staging_target_path(staged);
    request.set_target_path(published + "/" + pod);
    return NodeFixture::Publish(request);
  }
  void CheckLeftAlone() {
    CHECK_THAT(message, Catch::Matchers::Contains("another data path"));
    CHECK(Granted());
    CHECK_FALSE(Attached());
  }
};

}  // namespace

// Two data paths would fight over its session, and a raw device would have two caches.
TEST_CASE("a volume that an unknown data path serves is not staged by a publish") {
  ReplacedFixture f;
  CHECK(f.PublishTo("pod-2") == StatusCode::FAILED_PRECONDITION);
  f.CheckLeftAlone();
  CHECK(f.PublishTo("pod-1") == StatusCode::FAILED_PRECONDITION);
  f.CheckLeftAlone();
}

TEST_CASE("a volume that an unknown data path serves is not staged again, and a drain sets it free") {
  ReplacedFixture f;
  CHECK(f.StageThere() == StatusCode::FAILED_PRECONDITION);
  f.CheckLeftAlone();
  REQUIRE(f.Unpublish(f.volume.value(), f.published + "/pod-1") == StatusCode::OK);
  CHECK(f.Unstage(f.volume.value(), f.staged) == StatusCode::OK);
  CHECK(f.IsClean());
  CHECK(f.StageThere() == StatusCode::OK);
}

TEST_CASE("a stage in progress keeps its grant") {
  FlakyFixture f;
  const NodeId other("worker-2.fedcba9876543210");
  REQUIRE(f.array.AcquireGrant({f.volume, other, Access::kExclusive}, absl::ZeroDuration()).ok());
  StatusCode staged = StatusCode::UNKNOWN;
  std::thread staging([&] { staged = f.Stage(); });
  while (f.array.Waiting() == 0) std::this_thread::yield();
  std::atomic<bool> done = false;
  std::thread sweeping([&] {
    while (!done) f.service->ReturnUnusedGrants();
  });
  REQUIRE(f.array.ReleaseGrant(f.volume, other, GrantOwner::kNode, kAnyGeneration).ok());
  staging.join();
  done = true;
  sweeping.join();
  CHECK(staged == StatusCode::OK);
  CHECK(f.Granted());
}

TEST_CASE("what could not be given back is tried again") {
  FlakyFixture f;
  REQUIRE(f.flaky.Acquire(f.volume, {Access::kExclusive}, absl::ZeroDuration()).ok());
  f.flaky.cut_off = true;
  f.service->ReturnUnusedGrants();
  CHECK(f.Granted());
  f.flaky.cut_off = false;
  f.service->ReturnUnusedGrants();
  CHECK_FALSE(f.Granted());
}

TEST_CASE("a grant that an unstage could not give back is given back although nobody asks again") {
  FlakyFixture f;
  NodeServiceOptions options{.node = f.node, .doubt = {}, .topology = {}};
  f.service =
      std::make_unique<NodeService>(options, f.initiator, f.initiator, f.filesystem, f.mounter, &f.flaky);
  REQUIRE(f.Stage() == StatusCode::OK);
  f.service->ReturnUnusedGrants();  // the doubt of the start is over
  f.flaky.cut_off = true;
  CHECK(f.Unstage() == StatusCode::UNAVAILABLE);
  CHECK_FALSE(f.Attached());
  f.flaky.cut_off = false;
  f.service->ReturnUnusedGrants();
  CHECK(f.IsClean());
}

TEST_CASE("publishing says so when no controller can be asked, and changes nothing") {
  FlakyFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  f.flaky.cut_off = true;
  CHECK(f.Publish() == StatusCode::UNAVAILABLE);
  CHECK(f.MountCount() == 1);
  f.flaky.cut_off = false;
  CHECK(f.Publish() == StatusCode::OK);
}

}  // namespace lunkeeper
