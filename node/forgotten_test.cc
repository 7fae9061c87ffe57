// Devices that failed for good, and devices that work: their mounts that the orchestrator has forgotten are
// unmounted, and no others.

#include "base/testing/captured_log.h"
#include "node/testing/node_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;

// A volume in a pod of a kubelet's, whose staging paths end as kubelet's do.
struct KubeletFixture : NodeFixture {
  explicit KubeletFixture(bool block = false) {
    capability = Capability(AccessMode::SINGLE_NODE_WRITER, block);
    std::filesystem::create_directories(global);
    REQUIRE(StageThere() == StatusCode::OK);
    REQUIRE(PublishThere() == StatusCode::OK);
  }
  StatusCode StageThere() {
    auto request = StageRequest();
    request.set_staging_target_path(global);
    return Stage(request);
  }
  StatusCode PublishThere() {
    auto request = PublishRequest();
    request.set_staging_target_path(global);
    return Publish(request);
  }
  void FailDevice() { initiator.SetHealth(volume, DeviceHealth::kFailed, "fenced"); }
  void SetGracePeriod(absl::Duration grace_period) { SetPeriods(grace_period, absl::InfiniteDuration()); }
  void SetPeriods(absl::Duration grace_period, absl::Duration idle_period) {
    NodeServiceOptions options{.node = node,
                               .grace_period = grace_period,
                               .idle_period = idle_period,
                               .stages_for_publish = true,
                               .doubt = {},
                               .topology = {}};
    service = std::make_unique<NodeService>(options, initiator, initiator, filesystem, mounter, grants.get());
  }

  const std::string global = root / "globalmount";
};

}  // namespace

TEST_CASE("a failed device that is only staged is taken away, and its grant given back") {
  KubeletFixture f;
  f.SetGracePeriod(absl::ZeroDuration());
  f.FailDevice();
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.service->RemoveForgotten();
  CHECK(f.IsClean());
  f.service->RemoveForgotten();
}

TEST_CASE("a pod's mount stays for as long as its orchestrator leaves it") {
  KubeletFixture f;
  f.SetGracePeriod(absl::ZeroDuration());
  f.FailDevice();
  f.service->RemoveForgotten();
  CHECK(f.MountCount() == 2);
  CHECK(f.Attached());
}

TEST_CASE("a failed raw block device is taken away when no pod has it") {
  KubeletFixture f(/*block=*/true);
  f.SetGracePeriod(absl::ZeroDuration());
  f.FailDevice();
  f.service->RemoveForgotten();
  CHECK(f.Attached());
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.service->RemoveForgotten();
  CHECK(f.IsClean());
}

TEST_CASE("a device that works is left alone") {
  KubeletFixture f;
  f.SetGracePeriod(absl::ZeroDuration());
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.service->RemoveForgotten();
  CHECK(f.Attached());
  f.initiator.SetHealth(f.volume, DeviceHealth::kReconnecting, "away");
  f.service->RemoveForgotten();
  CHECK(f.Attached());
}

// Kubelet that was restarted between Unpublish and Unstage never asks again, and no other node could ever
// have the volume.
TEST_CASE("a device that works is unstaged when kubelet has forgotten it") {
  KubeletFixture f(/*block=*/GENERATE(false, true));
  f.SetPeriods(absl::ZeroDuration(), absl::ZeroDuration());
  f.service->RemoveForgotten();
  CHECK(f.Attached());  // a pod has it
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.initiator.SetHealth(f.volume, DeviceHealth::kReconnecting, "away");
  f.service->RemoveForgotten();
  CHECK(f.Attached());
  f.initiator.SetHealth(f.volume, DeviceHealth::kHealthy, "");
  f.service->RemoveForgotten();
  CHECK(f.IsClean());
}

TEST_CASE("data that a forgotten device lost are an error in the log, since no call returns them") {
  KubeletFixture f;
  f.SetPeriods(absl::ZeroDuration(), absl::ZeroDuration());
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.initiator.FailNext("Detach", absl::DataLossError("3 writes failed"));
  const testing::CapturedLog log(f.root / "log");
  f.service->RemoveForgotten();
  CHECK_THAT(log.Text(), Catch::Matchers::Contains("ERROR") && Catch::Matchers::Contains("3 writes failed"));
}

// What it has staged it does not stage again.
TEST_CASE("a device that works is left to a kubelet that still calls for it") {
  KubeletFixture f;
  const absl::Duration idle = absl::Milliseconds(300);
  f.SetPeriods(absl::ZeroDuration(), idle);
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.service->RemoveForgotten();
  absl::SleepFor(idle);
  f.mounter.FailNext("Bind", absl::UnavailableError("told to fail"));
  CHECK(f.PublishThere() == StatusCode::UNAVAILABLE);
  f.service->RemoveForgotten();  // its time begins anew
  CHECK(f.PublishThere() == StatusCode::OK);
}

// As while a Secret is missing that kubelet has to hand over with the publish: it does not call then.
TEST_CASE("a volume that was taken for forgotten is staged by the publish that comes after all") {
  KubeletFixture f(/*block=*/GENERATE(false, true));
  f.SetPeriods(absl::ZeroDuration(), absl::ZeroDuration());
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.service->RemoveForgotten();
  REQUIRE(f.IsClean());
  f.filesystem.SetContent({.content = Content::kFilesystem});  // as the stage has left it on the array
  CHECK(f.PublishThere() == StatusCode::OK);
  CHECK(f.Granted());
  REQUIRE(f.Unpublish() == StatusCode::OK);
  CHECK(f.Unstage(f.volume.value(), f.global) == StatusCode::OK);
  CHECK(f.IsClean());
}

// Failover deletes such a pod by its failed device, once the array is back.
TEST_CASE("a failed device that kubelet goes on publishing in vain is not taken away") {
  KubeletFixture f;
  f.SetGracePeriod(absl::ZeroDuration());
  f.FailDevice();
  REQUIRE(f.Unpublish() == StatusCode::OK);
  CHECK(f.PublishThere() == StatusCode::FAILED_PRECONDITION);
  f.service->RemoveForgotten();
  CHECK(f.Attached());
}

// As of an array that was away for too long: its device fails, and it cannot take the grant back yet.
TEST_CASE("a grant that could not be given back with its forgotten device is given back later") {
  KubeletFixture f;
  f.SetGracePeriod(absl::ZeroDuration());
  f.service->ReturnUnusedGrants();  // the doubt of the start is over
  f.FailDevice();
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.array.FailWith(absl::UnavailableError("the array is away"));
  f.service->RemoveForgotten();
  f.array.FailWith(absl::OkStatus());
  CHECK_FALSE(f.Attached());
  CHECK(f.Granted());
  f.service->RemoveForgotten();
  f.service->ReturnUnusedGrants();
  CHECK(f.IsClean());
}

TEST_CASE("the orchestrator has its time to do it itself") {
  KubeletFixture f;
  f.SetGracePeriod(absl::Hours(1));
  f.FailDevice();
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.service->RemoveForgotten();
  f.service->RemoveForgotten();
  CHECK(f.Attached());
}

TEST_CASE("a failed device that a process holds is tried again") {
  KubeletFixture f;
  f.SetGracePeriod(absl::ZeroDuration());
  f.FailDevice();
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.initiator.FailNext("Detach", absl::FailedPreconditionError("open"));
  f.service->RemoveForgotten();
  CHECK(f.Attached());
  f.service->RemoveForgotten();
  CHECK(f.IsClean());
}

// Once its device has gone, no later sweep would find the volume, and its grant would stay.
TEST_CASE("a failed device that took data along is taken away, and its grant given back") {
  KubeletFixture f;
  f.SetGracePeriod(absl::ZeroDuration());
  f.FailDevice();
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.initiator.FailNext("Detach", absl::DataLossError("the data path died"));
  f.service->RemoveForgotten();
  CHECK(f.IsClean());
}

TEST_CASE("a busy staging mount of a failed device goes all the same") {
  KubeletFixture f;
  f.SetGracePeriod(absl::ZeroDuration());
  f.FailDevice();
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.mounter.KeepBusy(f.global);
  f.service->RemoveForgotten();
  CHECK(f.IsClean());
}

}  // namespace lunkeeper
