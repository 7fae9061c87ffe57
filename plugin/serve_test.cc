// A whole server process, over fakes: starts, says when it is ready, takes calls, stops when told.

#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <boost/asio.hpp>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/testing/test_host.h"
#include "csi/v1/csi.grpc.pb.h"
#include "plugin/admin.grpc.pb.h"
#include "plugin/testing/fake_server.h"
#include "registration/registration.grpc.pb.h"

namespace lunkeeper {
namespace {

using testing::Eventually;
using testing::FakeServer;
using testing::FreePort;
using testing::Page;
using testing::TempDir;

}  // namespace

TEST_CASE("a server becomes ready, serves CSI and its pages, and a SIGTERM ends it well") {
  FakeServer server;
  REQUIRE(server.AwaitReady());
  CHECK_THAT(Page(server.port, "/healthz"), Catch::Contains("200 OK"));
  const auto channel = grpc::CreateChannel("unix:" + server.socket, grpc::InsecureChannelCredentials());
  const auto identity = csi::v1::Identity::NewStub(channel);
  grpc::ClientContext context;
  csi::v1::ProbeResponse probe;
  REQUIRE(identity->Probe(&context, {}, &probe).ok());
  CHECK(probe.ready().value());
  const auto node = csi::v1::Node::NewStub(channel);
  grpc::ClientContext node_context;
  csi::v1::NodeGetInfoResponse info;
  REQUIRE(node->NodeGetInfo(&node_context, {}, &info).ok());
  CHECK_THAT(info.node_id(), Catch::StartsWith("fake."));
  CHECK_THAT(Page(server.port, "/metrics"), Catch::Contains("lunkeeper_rpc_duration_seconds_count") &&
                                                Catch::Contains("csi.v1.Node/NodeGetInfo"));
  server.Signal(SIGTERM);
  CHECK(server.Wait() == 0);
  CHECK_FALSE(std::filesystem::exists(server.socket));
}

TEST_CASE("a server whose socket was deleted is not healthy, so that it is started anew") {
  FakeServer server;
  REQUIRE(server.AwaitReady());
  REQUIRE(std::filesystem::remove(server.socket));
  CHECK_THAT(Page(server.port, "/healthz"), Catch::Contains("503") && Catch::Contains(server.socket));
}

TEST_CASE("a server that was killed is followed by another on the same socket") {
  FakeServer first;
  REQUIRE(first.AwaitReady());
  first.Signal(SIGKILL);
  CHECK(first.Wait() == -1);
  FakeServer second;
  REQUIRE(second.AwaitReady());
  second.Signal(SIGINT);
  CHECK(second.Wait() == 0);
}

TEST_CASE("a node's server is ready when kubelet has registered it, and says so") {
  const TempDir directory;
  const std::filesystem::path socket = directory / "lunkeeper-reg.sock";
  {
    FakeServer server("--registration-dir=" + directory.path());
    REQUIRE(Eventually([&] { return std::filesystem::exists(socket); }));
    REQUIRE(Eventually(
        [&] { return Page(server.port, "/readyz").find("kubelet has not asked") != std::string::npos; }));
    const auto kubelet = pluginregistration::Registration::NewStub(
        grpc::CreateChannel("unix:" + socket.string(), grpc::InsecureChannelCredentials()));
    pluginregistration::PluginInfo info;
    grpc::ClientContext asking;
    REQUIRE(kubelet->GetInfo(&asking, {}, &info).ok());
    CHECK(info.name() == "csi.lunkeeper.io");
    CHECK(info.endpoint() == server.socket);
    pluginregistration::RegistrationStatus status;
    status.set_plugin_registered(true);
    pluginregistration::RegistrationStatusResponse response;
    grpc::ClientContext telling;
    REQUIRE(kubelet->NotifyRegistrationStatus(&telling, status, &response).ok());
    CHECK(server.AwaitReady());
    CHECK(Eventually([&] {
      return Page(server.port, "/metrics").find("\nlunkeeper_registered 1\n") != std::string::npos;
    }));
    server.Signal(SIGTERM);
    CHECK(server.Wait() == 0);
  }
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("with a socket of its own, the operator's service is not where CSI is") {
  const TempDir folder;
  const std::string admin = folder / "admin.sock";
  FakeServer server("--admin-endpoint=unix://" + admin);
  REQUIRE(server.AwaitReady());
  const auto ask = [](const std::string& socket) {
    const auto stub =
        admin::v1::Admin::NewStub(grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    admin::v1::StatusResponse status;
    return stub->Status(&context, {}, &status).error_code();
  };
  CHECK(ask(admin) == grpc::StatusCode::OK);
  CHECK(ask(server.socket) == grpc::StatusCode::UNIMPLEMENTED);
  const auto identity =
      csi::v1::Identity::NewStub(grpc::CreateChannel("unix:" + admin, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  csi::v1::ProbeResponse probe;
  CHECK(identity->Probe(&context, {}, &probe).error_code() == grpc::StatusCode::UNIMPLEMENTED);
}

TEST_CASE("probes have a port of their own, which idle readers of the metrics cannot take") {
  const uint16_t health = FreePort();
  FakeServer server("--health-address=127.0.0.1:" + std::to_string(health));
  REQUIRE(Eventually([&] { return Page(health, "/readyz").find("200 OK") != std::string::npos; }));
  CHECK_THAT(Page(server.port, "/readyz"), Catch::Contains("404"));
  CHECK_THAT(Page(server.port, "/metrics"), Catch::Contains("lunkeeper_build_info"));
  CHECK_THAT(Page(health, "/metrics"), Catch::Contains("404"));
  // A thousand at each port: the probes go on.
  std::vector<boost::asio::ip::tcp::iostream> idle(2000);
  for (size_t i = 0; i < idle.size(); ++i) {
    idle[i].connect(boost::asio::ip::tcp::endpoint(boost::asio::ip::address_v4::loopback(),
                                                   i % 2 == 0 ? server.port : health));
    if (i % 100 == 99) CHECK_THAT(Page(health, "/healthz"), Catch::Contains("200 OK"));
  }
}

TEST_CASE("a second server on a socket in use gives up") {
  FakeServer first;
  REQUIRE(first.AwaitReady());
  FakeServer second;
  CHECK(second.Wait() == 1);
  CHECK(std::filesystem::exists(first.socket));
}

}  // namespace lunkeeper
