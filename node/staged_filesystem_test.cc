// Which file system a stage finds, makes, checks or grows on its device, and what it never touches.
#include "node/testing/node_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;

TEST_CASE("somebody's data is never formatted over") {
  NodeFixture f;
  f.filesystem.SetContent({.content = Content::kForeign, .description = "LVM2_member"});
  CHECK(f.Stage() == StatusCode::FAILED_PRECONDITION);
  CHECK(f.message.find("LVM2_member") != std::string::npos);
  CHECK_FALSE(f.filesystem.Called("Make"));
  CHECK(f.IsClean());
}

TEST_CASE("a file system of the other type is refused, and used as it is if none was asked for") {
  NodeFixture f;
  f.filesystem.SetContent(
      {.content = Content::kFilesystem, .type = FilesystemType::kXfs, .filesystem_bytes = 64 << 20});
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER, false, "ext4");
  CHECK(f.Stage() == StatusCode::FAILED_PRECONDITION);
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER);
  CHECK(f.Stage() == StatusCode::OK);
  CHECK(f.Mounts().front().type == "xfs");
  CHECK(f.filesystem.Called("Check"));
  CHECK_FALSE(f.filesystem.Called("Make"));
}

TEST_CASE("the file system comes from the capability, then from the volume context, then it is ext4") {
  const auto [in_capability, in_context, made] = GENERATE(table<const char*, const char*, const char*>(
      {{"", "", "ext4"}, {"", "xfs", "xfs"}, {"ext4", "xfs", "ext4"}, {"xfs", "", "xfs"}}));
  NodeFixture f;
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER, false, in_capability);
  auto stage = f.StageRequest();
  (*stage.mutable_volume_context())["fsType"] = in_context;
  REQUIRE(f.Stage(stage) == StatusCode::OK);
  CHECK(f.Mounts().front().type == made);
}

const FilesystemProbe kSmallExt4 = {
    .content = Content::kFilesystem, .type = FilesystemType::kExt4, .filesystem_bytes = 32 << 20};

TEST_CASE("a file system smaller than its device grows mounted") {
  NodeFixture f;
  f.filesystem.SetContent(kSmallExt4);
  REQUIRE(f.Stage() == StatusCode::OK);
  CHECK(f.filesystem.Calls() == std::vector<std::string>{"Check", "GrowMounted"});
}

TEST_CASE("where the kernel refuses mounted growth, a file system grows unmounted, and is mounted then") {
  NodeFixture f;
  f.filesystem.SetContent(kSmallExt4);
  f.filesystem.FailNext("GrowMounted", absl::FailedPreconditionError("CAP_SYS_RESOURCE"));
  REQUIRE(f.Stage() == StatusCode::OK);
  CHECK(f.filesystem.Calls() == std::vector<std::string>{"Check", "GrowMounted", "GrowUnmounted"});
  CHECK(f.Mounts().size() == 1);
}

TEST_CASE("a stage cut short after its mount grows unmounted when repeated, but not under a pod") {
  NodeFixture f;
  f.filesystem.SetContent(kSmallExt4);
  REQUIRE(f.Stage() == StatusCode::OK);
  const bool published = GENERATE(false, true);
  if (published) REQUIRE(f.Publish() == StatusCode::OK);
  const size_t mounts = f.Mounts().size();
  f.filesystem.FailNext("GrowMounted", absl::FailedPreconditionError("CAP_SYS_RESOURCE"));
  CHECK(f.Stage() == StatusCode::OK);
  CHECK(f.filesystem.Called("GrowUnmounted") == !published);
  CHECK(f.Mounts().size() == mounts);
}

TEST_CASE("a tool that is still at work keeps its device, and the repeated stage goes on with it") {
  NodeFixture f;
  f.filesystem.SetContent(kSmallExt4);
  const std::string call = GENERATE("Check", "GrowUnmounted");
  if (call == "GrowUnmounted")
    f.filesystem.FailNext("GrowMounted", absl::FailedPreconditionError("CAP_SYS_RESOURCE"));
  f.filesystem.FailNext(call, absl::AbortedError("e2fsck is still at work"));
  CHECK(f.Stage() == StatusCode::ABORTED);
  CHECK(f.initiator.Find(f.volume)->has_value());
  CHECK(f.Mounts().empty());

  SECTION("until it is done") { CHECK(f.Stage() == StatusCode::OK); }
  SECTION("and a failure then undoes the stage, as it does without it") {
    f.filesystem.FailNext("Check", absl::FailedPreconditionError("needs a decision"));
    CHECK(f.Stage() == StatusCode::FAILED_PRECONDITION);
    CHECK(f.IsClean());
  }
}

TEST_CASE("an expanded volume's device and file system grow together") {
  const bool block = GENERATE(false, true);
  NodeFixture f;
  f.capability = NodeFixture::Capability(AccessMode::SINGLE_NODE_WRITER, block);
  REQUIRE(f.Stage() == StatusCode::OK);
  REQUIRE(f.Publish() == StatusCode::OK);
  auto expand = f.ExpandRequest();
  expand.mutable_capacity_range()->set_required_bytes(128 << 20);
  CHECK(f.Expand(expand) == StatusCode::OUT_OF_RANGE);  // the array has not grown it yet
  REQUIRE(f.array.ExpandVolume(f.volume, 128 << 20).ok());
  for (int repetition = 0; repetition < 2; ++repetition) REQUIRE(f.Expand(expand) == StatusCode::OK);
  CHECK(f.expanded.capacity_bytes() == 128 << 20);
  CHECK(f.filesystem.Called("GrowMounted") == !block);
}

}  // namespace
}  // namespace lunkeeper
