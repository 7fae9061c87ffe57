// A file system that closed itself after an error, and the pod that follows on the last one of the node.
#include <algorithm>

#include "node/testing/node_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;

struct ClosedFixture : NodeFixture {
  ClosedFixture() {
    REQUIRE(Stage() == StatusCode::OK);
    REQUIRE(Publish() == StatusCode::OK);
    mounter.CloseFilesystem(initiator.Find(volume)->value().path);
    next.set_target_path(other_target);
  }
  bool IsChecked() {
    const auto calls = filesystem.Calls();
    return std::find(calls.begin(), calls.end(), "Check") != calls.end();
  }
  bool IsClosed() { return Mounts().front().file_system_read_only; }

  csi::v1::NodePublishVolumeRequest next = PublishRequest();
};

}  // namespace

TEST_CASE("a file system that closed itself is checked and mounted anew for the next pod") {
  ClosedFixture f;
  CHECK(f.Publish() == StatusCode::OK);  // a repeated call changes nothing
  CHECK(f.Publish(f.next) == StatusCode::FAILED_PRECONDITION);
  CHECK(f.message.find(f.target) != std::string::npos);
  CHECK(f.IsClosed());
  REQUIRE(f.Unpublish() == StatusCode::OK);
  CHECK(f.Publish(f.next) == StatusCode::OK);
  CHECK(f.IsChecked());
  CHECK_FALSE(f.IsClosed());
  CHECK(f.MountCount() == 2);
}

TEST_CASE("a check for the next pod that takes longer than its call is gone on with") {
  ClosedFixture f;
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.filesystem.FailNext("Check", absl::AbortedError("e2fsck is still at work"));
  CHECK(f.Publish(f.next) == StatusCode::ABORTED);
  CHECK(f.MountCount() == 0);
  CHECK(f.Granted());
  CHECK(f.Publish(f.next) == StatusCode::OK);
  CHECK(f.MountCount() == 2);
}

// As a plugin that is updated while e2fsck works.
TEST_CASE("a check for the next pod that died with its process is begun anew") {
  ClosedFixture f;
  const bool reader = GENERATE(false, true);
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.filesystem.FailNext("Check", absl::AbortedError("e2fsck is still at work"));
  CHECK(f.Publish(f.next) == StatusCode::ABORTED);
  f.service = f.MakeService(f.grants.get());
  f.next.set_readonly(reader);
  CHECK(f.Publish(f.next) == StatusCode::OK);
  CHECK_FALSE(f.IsClosed());
  CHECK(f.MountCount() == 2);
}

TEST_CASE("a reader gets a file system that closed itself as it is") {
  ClosedFixture f;
  f.next.set_readonly(true);
  CHECK(f.Publish(f.next) == StatusCode::OK);
  CHECK_FALSE(f.IsChecked());
}

namespace {

// The mount table shows nothing of it.
struct ShutXfsFixture : NodeFixture {
  ShutXfsFixture() {
    capability = Capability(AccessMode::SINGLE_NODE_MULTI_WRITER, /*block=*/false, "xfs");
    REQUIRE(Stage() == StatusCode::OK);
    REQUIRE(Publish() == StatusCode::OK);
    next = PublishRequest();
    next.set_target_path(other_target);
  }
  void AnswerEio(int times) {
    for (int i = 0; i < times; ++i) filesystem.FailNext("UsageOf", absl::InternalError("Input/output error"));
  }

  csi::v1::NodePublishVolumeRequest next;
};

}  // namespace

TEST_CASE("an XFS that has shut itself down is mounted anew for the next pod, which may be a reader") {
  ShutXfsFixture f;
  f.next.set_readonly(GENERATE(false, true));
  f.AnswerEio(2);
  CHECK(f.Publish(f.next) == StatusCode::FAILED_PRECONDITION);
  CHECK(f.message.find(f.target) != std::string::npos);
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.AnswerEio(2);
  f.mounter.FailNext("WriteBack", absl::DataLossError("Input/output error"));
  CHECK(f.Publish(f.next) == StatusCode::OK);
  CHECK(f.filesystem.Called("Check"));
  CHECK(f.MountCount() == 2);
  REQUIRE(f.Unpublish(f.volume.value(), f.other_target) == StatusCode::OK);
  CHECK(f.Unstage() == StatusCode::DATA_LOSS);
}

// A container that has copied the mounts keeps it.
TEST_CASE("an XFS that is still shut down after it was mounted anew is not published") {
  ShutXfsFixture f;
  REQUIRE(f.Unpublish() == StatusCode::OK);
  f.AnswerEio(4);
  CHECK(f.Publish(f.next) == StatusCode::FAILED_PRECONDITION);
  CHECK(f.Publish(f.next) == StatusCode::OK);  // when that container has ended
}

TEST_CASE("an XFS that answers late, or only the second time, is published as it is") {
  ShutXfsFixture f;
  if (GENERATE(false, true)) {
    f.AnswerEio(1);
  } else {
    f.filesystem.FailNext("UsageOf", absl::DeadlineExceededError("a slow array"));
  }
  CHECK(f.Publish(f.next) == StatusCode::OK);
  CHECK_FALSE(f.filesystem.Called("Check"));
  CHECK(f.MountCount() == 3);
}

}  // namespace lunkeeper
