#include "node/registration.h"

#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/testing/test_host.h"
#include "base/unique_fd.h"
#include "registration/registration.grpc.pb.h"

namespace lunkeeper {
namespace {

namespace fs = std::filesystem;
using testing::Eventually;
using testing::TempDir;

// As much of kubelet as registration needs: a directory it watches, and what it asks.
class FakeKubelet {
 public:
  RegistrationOptions Options() const {
    return {directory, "csi.lunkeeper.io", "/var/lib/kubelet/plugins/csi.lunkeeper.io/csi.sock"};
  }
  bool SeesSocket() const {
    std::error_code error;
    return fs::is_socket(socket, error);
  }
  // Everything else in the directory that it does not ignore.
  size_t Visible() const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(directory)) {
      if (entry.path().filename().string().front() != '.') ++count;
    }
    return count;
  }

  // Asks, and answers with `error`; false when nobody is there.
  bool Register(const std::string& error = "") {
    auto stub = pluginregistration::Registration::NewStub(
        grpc::CreateCustomChannel("unix:" + socket.string(), grpc::InsecureChannelCredentials(), Fresh()));
    grpc::ClientContext asking;
    asking.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
    if (!stub->GetInfo(&asking, {}, &info).ok()) return false;
    pluginregistration::RegistrationStatus status;
    status.set_plugin_registered(error.empty());
    status.set_error(error);
    pluginregistration::RegistrationStatusResponse response;
    grpc::ClientContext telling;
    telling.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
    return stub->NotifyRegistrationStatus(&telling, status, &response).ok();
  }

  const TempDir temporary;
  const fs::path directory = temporary.path(), socket = directory / "lunkeeper-reg.sock";
  pluginregistration::PluginInfo info;

 private:
  // A connection of its own, as a restarted kubelet has.
  static grpc::ChannelArguments Fresh() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return arguments;
  }
};

// Leaves a socket behind that nobody listens on, as a killed process does.
void LeaveDeadSocket(const fs::path& path) {
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
}

}  // namespace

TEST_CASE("kubelet finds the driver, its socket and its version, and registers it") {
  FakeKubelet kubelet;
  const auto registration = StartRegistration(kubelet.Options());
  REQUIRE(Eventually([&] { return kubelet.SeesSocket(); }));
  CHECK(absl::IsUnavailable(registration->Status()));
  REQUIRE(kubelet.Register());
  CHECK(kubelet.info.type() == "CSIPlugin");
  CHECK(kubelet.info.name() == "csi.lunkeeper.io");
  CHECK(kubelet.info.endpoint() == "/var/lib/kubelet/plugins/csi.lunkeeper.io/csi.sock");
  REQUIRE(kubelet.info.supported_versions_size() == 1);
  CHECK(kubelet.info.supported_versions(0) == "1.0.0");
  CHECK(registration->Status().ok());
  CHECK(kubelet.Visible() == 1);
}

TEST_CASE("a kubelet that restarted and wiped its directory can register the driver again") {
  FakeKubelet kubelet;
  const auto registration = StartRegistration(kubelet.Options());
  REQUIRE(Eventually([&] { return kubelet.SeesSocket() && kubelet.Register(); }));
  for (int round = 0; round < 2; ++round) {
    fs::remove(kubelet.socket);
    REQUIRE(Eventually([&] { return kubelet.SeesSocket(); }));
    CHECK(Eventually(
        [&] { return absl::IsUnavailable(registration->Status()); }));  // a moment after it is seen
    REQUIRE(kubelet.Register());
    CHECK(registration->Status().ok());
  }
}

TEST_CASE("a directory that is not there yet is waited for") {
  FakeKubelet kubelet;
  fs::remove(kubelet.directory);
  const auto registration = StartRegistration(kubelet.Options());
  REQUIRE(Eventually([&] { return absl::IsFailedPrecondition(registration->Status()); }));
  CHECK_THAT(std::string(registration->Status().message()),
             Catch::Contains(kubelet.socket.string()) && Catch::Contains("directory exists"));
  fs::create_directory(kubelet.directory);
  REQUIRE(Eventually([&] { return kubelet.SeesSocket(); }));
  CHECK(kubelet.Register());
}

TEST_CASE("a refusal is shown in kubelet's words, until it registers the driver after all") {
  FakeKubelet kubelet;
  const auto registration = StartRegistration(kubelet.Options());
  REQUIRE(Eventually([&] { return kubelet.SeesSocket(); }));
  REQUIRE(kubelet.Register("node info could not be updated"));
  CHECK(absl::IsFailedPrecondition(registration->Status()));
  CHECK_THAT(std::string(registration->Status().message()),
             Catch::Contains("node info could not be updated"));
  REQUIRE(kubelet.Register());
  CHECK(registration->Status().ok());
}

TEST_CASE("the socket of a killed predecessor is replaced") {
  FakeKubelet kubelet;
  LeaveDeadSocket(kubelet.socket);
  const auto registration = StartRegistration(kubelet.Options());
  CHECK(Eventually([&] { return kubelet.Register(); }));
}

TEST_CASE("a graceful stop takes the socket away") {
  FakeKubelet kubelet;
  auto registration = StartRegistration(kubelet.Options());
  REQUIRE(Eventually([&] { return kubelet.SeesSocket(); }));
  registration.reset();
  CHECK(fs::is_empty(kubelet.directory));
}

TEST_CASE("a predecessor that still answers is left alone, and succeeded when it goes") {
  FakeKubelet kubelet;
  auto predecessor = StartRegistration(kubelet.Options());
  REQUIRE(Eventually([&] { return kubelet.Register(); }));
  auto successor = StartRegistration(kubelet.Options());
  REQUIRE(Eventually([&] { return absl::IsFailedPrecondition(successor->Status()); }));
  CHECK(predecessor->Status().ok());
  predecessor.reset();
  REQUIRE(Eventually([&] { return kubelet.SeesSocket(); }));
  REQUIRE(kubelet.Register());
  CHECK(successor->Status().ok());
}

}  // namespace lunkeeper
