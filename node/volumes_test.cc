// From LUN to pod and back: order, repetition, failure at each step, and no leftovers.
#include "node/stager.h"

#include <algorithm>
#include <fstream>

#include "node/testing/node_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;

TEST_CASE("a volume is staged, published, unpublished and unstaged, and nothing is left") {
  const bool block = GENERATE(false, true);
  NodeFixture f;
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER, block);
  for (int repetition = 0; repetition < 2; ++repetition) REQUIRE(f.Stage() == StatusCode::OK);
  CHECK(f.Granted());
  CHECK(f.Attached());
  CHECK(f.filesystem.Called("Make") == !block);
  for (int repetition = 0; repetition < 2; ++repetition) REQUIRE(f.Publish() == StatusCode::OK);
  CHECK(std::filesystem::is_directory(f.target) == !block);
  CHECK(f.MountCount() == (block ? 1 : 2));
  CHECK(f.Stats(f.volume.value(), f.target) == StatusCode::OK);
  CHECK(f.stats.usage(0).unit() == csi::v1::VolumeUsage::BYTES);
  CHECK(f.stats.usage(0).total() == (block ? 64 << 20 : 1 << 30));
  for (int repetition = 0; repetition < 2; ++repetition) REQUIRE(f.Unpublish() == StatusCode::OK);
  CHECK_FALSE(std::filesystem::exists(f.target));
  for (int repetition = 0; repetition < 2; ++repetition) REQUIRE(f.Unstage() == StatusCode::OK);
  CHECK(f.IsClean());
  CHECK(std::filesystem::exists(f.staging));
}

TEST_CASE("undoing what was never done succeeds") {
  NodeFixture f;
  CHECK(f.Unpublish() == StatusCode::OK);
  CHECK(f.Unstage() == StatusCode::OK);
  CHECK(f.Unpublish("unknown", f.root / "no/such/place") == StatusCode::OK);
  CHECK(f.Unstage("unknown", f.root / "no/such/place") == StatusCode::OK);
}

TEST_CASE("a volume that is not staged is not published") {
  NodeFixture f;
  CHECK(f.Publish() == StatusCode::FAILED_PRECONDITION);
  CHECK(f.message.find("NodeStageVolume") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(f.target));
}

TEST_CASE("a published volume is not unstaged, and the message says where it is") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  CHECK(f.Unstage() == StatusCode::FAILED_PRECONDITION);
  CHECK(f.message.find(f.target) != std::string::npos);
  CHECK(f.Granted());
  REQUIRE(f.Unpublish() == StatusCode::OK);
  REQUIRE(f.Unstage() == StatusCode::OK);
  CHECK(f.IsClean());
}

TEST_CASE("a stage that fails at any step takes everything back, and succeeds when repeated") {
  const std::string step =
      GENERATE("Find", "Attach", "Probe", "Make", "MountDevice", "Mounts", "GrowMounted");
  NodeFixture f;
  INFO(step);
  const absl::Status failure = absl::UnavailableError("told to fail");
  f.initiator.FailNext(step, failure);
  f.filesystem.FailNext(step, failure);
  f.mounter.FailNext(step, failure);
  CHECK(f.Stage() == StatusCode::UNAVAILABLE);
  CHECK(f.message.find("told to fail") != std::string::npos);
  if (step != "Find") CHECK(f.IsClean());
  CHECK(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
}

TEST_CASE("a data path that dies in the middle of a stage leaves no path to format another volume by") {
  NodeFixture f;
  f.initiator.DieAfterAttach();
  CHECK(f.Stage() == StatusCode::UNAVAILABLE);
  CHECK_FALSE(f.filesystem.Called("Make"));
  CHECK(f.Stage() == StatusCode::OK);
}

TEST_CASE("a stage that fails for a data path that died leaves no dead mount for kubelet to stumble over") {
  NodeFixture f;
  f.filesystem.FailNext("GrowMounted", absl::InternalError("Input/output error"));
  f.initiator.FailNext("Detach", absl::UnavailableError("the data path is gone"));
  CHECK(f.Stage() == StatusCode::INTERNAL);
  CHECK(f.MountCount() == 0);
  CHECK(f.Stage() == StatusCode::OK);
}

TEST_CASE("a repeated stage that fails leaves the staged volume alone") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  f.mounter.FailNext("Mounts", absl::UnavailableError("told to fail"));
  CHECK(f.Stage() == StatusCode::UNAVAILABLE);
  CHECK(f.Granted());
  CHECK(f.MountCount() == 1);
  CHECK(f.Publish() == StatusCode::OK);
}

TEST_CASE("a publish that fails leaves no target path") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  f.mounter.FailNext("Bind", absl::InternalError("told to fail"));
  CHECK(f.Publish() == StatusCode::INTERNAL);
  CHECK_FALSE(std::filesystem::exists(f.target));
  CHECK(f.Publish() == StatusCode::OK);
}

TEST_CASE("an unstage that fails at any step succeeds when repeated") {
  const std::string step = GENERATE("Mounts", "Unmount", "Detach", "List");
  NodeFixture f;
  INFO(step);
  REQUIRE(f.Stage() == StatusCode::OK);
  f.initiator.FailNext(step, absl::UnavailableError("told to fail"));
  f.mounter.FailNext(step, absl::UnavailableError("told to fail"));
  CHECK(f.Unstage() == StatusCode::UNAVAILABLE);
  CHECK(f.Granted());  // not before the device is gone
  CHECK(f.Unstage() == StatusCode::OK);
  CHECK(f.IsClean());
}

TEST_CASE("what the node's own LVM or mdadm has on a device is named") {
  NodeFixture f;
  const std::filesystem::path holders = f.root / "sys/loop4096/holders";
  std::filesystem::create_directories(holders / "dm-3/dm");
  std::ofstream(holders / "dm-3/dm/name") << "vg-data\n";
  std::filesystem::create_directories(holders / "md127");
  std::vector<std::string> found = ListHolders("/dev/loop4096", f.root / "sys");
  std::sort(found.begin(), found.end());
  CHECK(found == std::vector<std::string>{"md127", "vg-data"});
  CHECK(ListHolders("/dev/loop4097", f.root / "sys").empty());
}

TEST_CASE("a grant that cannot be given back is given back by the repeated unstage") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  f.array.HoldDrains(true);
  CHECK(f.Unstage() == StatusCode::DEADLINE_EXCEEDED);
  CHECK_FALSE(f.Attached());
  f.array.HoldDrains(false);
  CHECK(f.Unstage() == StatusCode::OK);
  CHECK(f.IsClean());
}

TEST_CASE("a reader stages and publishes read-only, and a blank volume is not formatted for it") {
  NodeFixture f;
  f.capability = NodeFixture::Capability(AccessMode::MULTI_NODE_READER_ONLY);
  CHECK(f.Stage() == StatusCode::FAILED_PRECONDITION);
  CHECK_FALSE(f.filesystem.Called("Make"));
  CHECK(f.IsClean());
  f.filesystem.SetContent({.content = Content::kFilesystem, .filesystem_bytes = 16 << 20});
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  CHECK(f.filesystem.Calls().empty());  // neither checked nor grown
  CHECK(f.initiator.Find(f.volume)->value().read_only);
  for (const Mount& mount : f.Mounts()) CHECK(mount.read_only);
}

TEST_CASE("a writable volume is published read-only on request, and not both ways at one path") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  auto publish = f.PublishRequest();
  publish.set_readonly(true);
  REQUIRE(f.Publish(publish) == StatusCode::OK);
  CHECK(f.Mounts().back().read_only);
  CHECK(f.Publish() == StatusCode::ALREADY_EXISTS);
}

TEST_CASE("a staged volume is not staged in another way") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER, true);
  CHECK(f.Stage() == StatusCode::ALREADY_EXISTS);
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER, false, "xfs");
  CHECK(f.Stage() == StatusCode::ALREADY_EXISTS);
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER);
  f.capability.mutable_mount()->add_mount_flags("ro");
  CHECK(f.Stage() == StatusCode::ALREADY_EXISTS);
  f.capability.mutable_mount()->set_mount_flags(0, "context=system_u:object_r:container_file_t:s0");
  CHECK(f.Stage() == StatusCode::OK);
  f.mounter.FailNext("MountDevice", absl::InvalidArgumentError("it has another label"));
  CHECK(f.Stage() == StatusCode::ALREADY_EXISTS);
  CHECK(f.MountCount() == 1);
  CHECK(f.Granted());
}

TEST_CASE("a volume whose device failed for good is not published, but unpublished and unstaged") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  f.initiator.SetHealth(f.volume, DeviceHealth::kFailed, "fenced");
  auto publish = f.PublishRequest();
  publish.set_target_path(f.other_target);
  CHECK(f.Publish(publish) == StatusCode::FAILED_PRECONDITION);
  CHECK(f.message.find("fenced") != std::string::npos);
  f.mounter.KeepBusy(f.target);  // a container that will not end
  CHECK(f.Unpublish() == StatusCode::OK);
  CHECK(f.Unstage() == StatusCode::OK);
  CHECK(f.IsClean());
}

TEST_CASE("a healthy volume that is busy stays mounted") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  f.mounter.KeepBusy(f.target);
  CHECK(f.Unpublish() == StatusCode::FAILED_PRECONDITION);
  CHECK(f.MountCount() == 2);
}

TEST_CASE("a device of an earlier grant, or one that failed, is replaced when the volume is staged again") {
  const bool regranted = GENERATE(false, true);
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  const std::string before = f.initiator.Find(f.volume)->value().path;
  if (regranted) {
    REQUIRE(f.array.ReleaseGrant(f.volume, f.node, GrantOwner::kNode, kAnyGeneration).ok());
  } else {
    f.initiator.SetHealth(f.volume, DeviceHealth::kFailed, "the data path died");
    f.initiator.FailNext("Detach", absl::DataLossError("what was not synced may be lost"));  // in the log
  }
  REQUIRE(f.Stage() == StatusCode::OK);
  CHECK(f.initiator.Find(f.volume)->value().path != before);
  CHECK(f.MountCount() == 1);
  CHECK(f.Publish() == StatusCode::OK);
}

TEST_CASE("a stale device that a pod still uses is not replaced under it") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  REQUIRE(f.array.ReleaseGrant(f.volume, f.node, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(f.Stage() == StatusCode::FAILED_PRECONDITION);
  CHECK(f.message.find(f.target) != std::string::npos);
  CHECK(f.Publish() == StatusCode::FAILED_PRECONDITION);
  REQUIRE(f.Unpublish() == StatusCode::OK);
  CHECK(f.Stage() == StatusCode::OK);
}

TEST_CASE("a mount of another volume is left where it is") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  const VolumeId other = f.CreateVolume("pvc-2");
  auto stage = f.StageRequest();
  stage.set_volume_id(other.value());
  CHECK(f.Stage(stage) == StatusCode::FAILED_PRECONDITION);
  CHECK(f.Unpublish(other.value(), f.target) == StatusCode::FAILED_PRECONDITION);
  CHECK(f.MountCount() == 2);
}

TEST_CASE("an empty directory at the target of a raw device gives way to it, one with files does not") {
  NodeFixture f;
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER, /*block=*/true);
  REQUIRE(f.Stage() == StatusCode::OK);
  std::filesystem::create_directories(f.target + "/files");
  CHECK(f.Publish() == StatusCode::INVALID_ARGUMENT);
  CHECK(std::filesystem::is_directory(f.target + "/files"));
  std::filesystem::remove(f.target + "/files");
  for (int repetition = 0; repetition < 2; ++repetition) REQUIRE(f.Publish() == StatusCode::OK);
  CHECK_FALSE(std::filesystem::is_directory(f.target));
  REQUIRE(f.Unpublish() == StatusCode::OK);
  REQUIRE(f.Unstage() == StatusCode::OK);
  CHECK(f.IsClean());
}

TEST_CASE("files that were put under a mount point are not removed with it") {
  NodeFixture f;
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  std::ofstream(f.target + "/under") << "data";
  CHECK(f.Unpublish() == StatusCode::FAILED_PRECONDITION);
  CHECK(std::filesystem::exists(f.target + "/under"));
}

TEST_CASE("paths through a symlinked directory are found again by their real name") {
  NodeFixture f;
  std::filesystem::create_directory_symlink(f.root, f.root / "linked");
  auto stage = f.StageRequest();
  stage.set_staging_target_path(f.root / "linked/staging");
  REQUIRE(f.Stage(stage) == StatusCode::OK);
  CHECK(f.Stage() == StatusCode::OK);
  CHECK(f.MountCount() == 1);
  REQUIRE(f.Publish() == StatusCode::OK);
  CHECK(f.Unpublish(f.volume.value(), f.root / "linked/pods/target") == StatusCode::OK);
  CHECK(f.Unstage() == StatusCode::OK);
  CHECK(f.IsClean());
}

}  // namespace
}  // namespace lunkeeper
