#include "plugin/server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <future>
#include <stdexcept>

#include "absl/synchronization/notification.h"
#include "base/testing/captured_log.h"
#include "base/testing/test_host.h"
#include "csi/v1/csi.grpc.pb.h"

namespace lunkeeper {
namespace {

using testing::CapturedLog;
using testing::Eventually;
using testing::TempDir;

class TestNode final : public csi::v1::Node::Service {
 public:
  grpc::Status NodeStageVolume(grpc::ServerContext*, const csi::v1::NodeStageVolumeRequest* request,
                               csi::v1::NodeStageVolumeResponse*) override {
    if (request->volume_id() == "throw") throw std::runtime_error("a bug");
    if (request->volume_id() == "wait") {
      ++waiting;
      go_on.WaitForNotificationWithTimeout(absl::Seconds(30));
    }
    return grpc::Status::OK;
  }

  void AwaitWaiting(int count) {
    REQUIRE(Eventually([&] { return waiting == count; }));
  }

  std::atomic<int> waiting = 0;
  absl::Notification go_on;
};

struct ServerFixture {
  TempDir dir;
  Metrics metrics{"test"};
  TestNode node;
  std::string path = dir / "csi.sock";
  absl::StatusOr<std::unique_ptr<Server>> server =
      Server::Start({.endpoint = "unix://" + path}, {&node}, &metrics);
  std::unique_ptr<csi::v1::Node::Stub> stub =
      csi::v1::Node::NewStub(grpc::CreateChannel("unix:" + path, grpc::InsecureChannelCredentials()));

  grpc::Status Stage(const std::string& volume, const csi::v1::NodeStageVolumeRequest& request_base = {}) {
    csi::v1::NodeStageVolumeRequest request = request_base;
    request.set_volume_id(volume);
    csi::v1::NodeStageVolumeResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return stub->NodeStageVolume(&context, request, &response);
  }
};

}  // namespace

TEST_CASE("an endpoint is an absolute path of a unix socket") {
  CHECK(*SocketPath("unix:///run/csi.sock") == "/run/csi.sock");
  CHECK(*SocketPath("unix:/run/csi.sock") == "/run/csi.sock");
  CHECK(*SocketPath("/run/csi.sock") == "/run/csi.sock");
  for (const std::string& wrong :
       {std::string(), std::string("tcp://127.0.0.1:1"), std::string("csi.sock"), std::string("/run/csi"),
        std::string("unix:///run/csi.sock/"), "/" + std::string(108, 'a')}) {
    CAPTURE(wrong);
    CHECK(absl::IsInvalidArgument(SocketPath(wrong).status()));
  }
}

TEST_CASE("a call is answered, counted and logged, and its secrets are not in the log") {
  ServerFixture fixture;
  REQUIRE(fixture.server.ok());
  CapturedLog log(fixture.dir / "log");
  csi::v1::NodeStageVolumeRequest request;
  (*request.mutable_secrets())["password"] = "hunter2";
  (*request.mutable_publish_context())["chapSecret"] = "correct-horse";
  request.set_staging_target_path("/staging");
  CHECK(fixture.Stage("vol-1", request).ok());
  CHECK_THAT(fixture.metrics.ToText(),
             Catch::Contains("code=\"OK\",method=\"csi.v1.Node/NodeStageVolume\"") ||
                 Catch::Contains("method=\"csi.v1.Node/NodeStageVolume\",code=\"OK\""));
  const std::string text = log.Text();
  CHECK_THAT(text, Catch::Contains("csi.v1.Node/NodeStageVolume") && Catch::Contains("volume_id=vol-1") &&
                       Catch::Contains("staging_target_path=/staging") && Catch::Contains("code=OK"));
  CHECK_THAT(text, !Catch::Contains("hunter2") && !Catch::Contains("correct-horse"));
}

TEST_CASE("an exception ends its own call only") {
  ServerFixture fixture;
  CHECK(fixture.Stage("throw").error_code() == grpc::StatusCode::UNKNOWN);
  CHECK(fixture.Stage("vol-1").ok());
  CHECK_THAT(fixture.metrics.ToText(), Catch::Contains("UNKNOWN"));
}

TEST_CASE("a request that is too large is refused") {
  ServerFixture fixture;
  csi::v1::NodeStageVolumeRequest request;
  request.set_staging_target_path(std::string(2 << 20, 'a'));
  CHECK(fixture.Stage("vol-1", request).error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_CASE("many calls that wait hold up no others") {
  ServerFixture fixture;
  constexpr int kMany = 100;
  std::vector<std::future<grpc::Status>> waiting;
  for (int i = 0; i < kMany; ++i) {
    waiting.push_back(std::async(std::launch::async, [&] { return fixture.Stage("wait"); }));
  }
  fixture.node.AwaitWaiting(kMany);
  for (int i = 0; i < 10; ++i) CHECK(fixture.Stage("vol-1").ok());
  fixture.node.go_on.Notify();
  for (auto& call : waiting) CHECK(call.get().ok());
}

TEST_CASE("a graceful stop lets running calls finish and takes no new ones") {
  ServerFixture fixture;
  auto running = std::async(std::launch::async, [&] { return fixture.Stage("wait"); });
  fixture.node.AwaitWaiting(1);
  auto stopped = std::async(std::launch::async, [&] { return (*fixture.server)->Stop(absl::Seconds(30)); });
  CHECK(stopped.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  // Of a call that comes just as the stop begins gRPC may say CANCELLED.
  CHECK(Eventually([&] { return fixture.Stage("vol-1").error_code() == grpc::StatusCode::UNAVAILABLE; }));
  fixture.node.go_on.Notify();
  CHECK(running.get().ok());
  CHECK(stopped.get());
}

TEST_CASE("a stop whose limit passes says that calls are left") {
  ServerFixture fixture;
  auto running = std::async(std::launch::async, [&] { return fixture.Stage("wait"); });
  fixture.node.AwaitWaiting(1);
  CHECK_FALSE((*fixture.server)->Stop(absl::Milliseconds(10)));
  fixture.node.go_on.Notify();
  CHECK_FALSE(running.get().ok());
}

TEST_CASE("the socket is the owner's alone, and gone after the stop") {
  ServerFixture fixture;
  struct stat info {};
  REQUIRE(::stat(fixture.path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK((*fixture.server)->Stop(absl::Seconds(10)));
  CHECK(::stat(fixture.path.c_str(), &info) != 0);
}

TEST_CASE("a socket in use is left alone, a stale one is replaced, and a file is refused") {
  ServerFixture fixture;
  const auto second = Server::Start({.endpoint = fixture.path}, {&fixture.node}, &fixture.metrics);
  CHECK(absl::IsFailedPrecondition(second.status()));
  CHECK(fixture.Stage("vol-1").ok());

  const std::string stale = fixture.dir / "stale.sock";
  {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    stale.copy(address.sun_path, sizeof(address.sun_path) - 1);
    REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    ::close(fd);
  }
  TestNode node;
  CHECK(Server::Start({.endpoint = stale}, {&node}, &fixture.metrics).ok());

  std::ofstream(fixture.dir / "file.sock") << "mine";
  CHECK(absl::IsFailedPrecondition(
      Server::Start({.endpoint = fixture.dir / "file.sock"}, {&node}, &fixture.metrics).status()));
  CHECK(std::filesystem::exists(fixture.dir / "file.sock"));
  CHECK(absl::IsFailedPrecondition(
      Server::Start({.endpoint = fixture.dir / "no/such/csi.sock"}, {&node}, &fixture.metrics).status()));
}

}  // namespace lunkeeper
