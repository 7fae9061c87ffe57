// Who may call an agent, and what a client makes of one that is wrong, silent or gone.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/test_host.h"
#include "devices/array/remote/array.grpc.pb.h"
#include "devices/array/remote/testing/remote_array_fixture.h"
#include "devices/array/remote/wire.h"

namespace lunkeeper::testing {

TEST_CASE("a client without a certificate of the right kind is refused, and changes nothing") {
  TestAgent agent(AgentTls());
  VolumeSpec spec;
  spec.name = "v";

  const TestCa other;
  TlsFiles stranger = other.Issue("controller", kControllerNames);
  stranger.ca = AgentTls().ca;  // it trusts the agent, and the agent does not trust it
  CHECK(absl::IsUnavailable(Connect(agent.Options(stranger))->volumes().CreateVolume(spec).status()));

  grpc::SslCredentialsOptions no_identity;
  std::ifstream ca(AgentTls().ca);
  no_identity.pem_root_certs.assign(std::istreambuf_iterator<char>(ca), {});
  const auto no_certificate = grpc::CreateChannel(agent.address(), grpc::SslCredentials(no_identity));
  const auto stub = array::v1::ArrayService::NewStub(no_certificate);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kLong));
  array::v1::CapacityResponse response;
  CHECK(stub->Capacity(&context, {}, &response).error_code() == grpc::StatusCode::UNAVAILABLE);

  for (const char* names :
       {"DNS:prod", "", "DNS:admin.c1.cluster.lunkeeper.io", "DNS:controller..cluster.lunkeeper.io",
        "DNS:controller.c1.cluster.lunkeeper.io,DNS:controller.c2.cluster.lunkeeper.io"}) {
    const auto array = Connect(agent.Options(Ca().Issue("odd", names)));
    const absl::Status refused = array->volumes().CreateVolume(spec).status();
    CHECK(absl::IsPermissionDenied(refused));
    CHECK_THAT(std::string(refused.message()), Catch::Contains("controller.CLUSTER.cluster.lunkeeper.io"));
  }
  CHECK(agent.Of().ListVolumes("", 0)->items.empty());
}

TEST_CASE("an agent with another CA's certificate, or another's name, is not believed") {
  const TestCa other;
  TlsFiles impostor = other.Issue("agent", kAgentNames);
  impostor.ca = ControllerTls().ca;
  {
    TestAgent agent(impostor);
    const absl::Status refused = Connect(agent.Options(ControllerTls()))->volumes().GetCapacity().status();
    CHECK(absl::IsUnavailable(refused));
    CHECK_THAT(std::string(refused.message()),
               Catch::Contains("array a1 at 127.0.0.1:") && Catch::Contains("CA"));
  }
  TestAgent agent(AgentTls());
  RemoteArrayOptions options = agent.Options(ControllerTls());
  options.server_name = "storage.example";
  CHECK(absl::IsUnavailable(Connect(options)->volumes().GetCapacity().status()));
  options.server_name = "localhost";
  CHECK(Connect(options)->volumes().GetCapacity().ok());
}

TEST_CASE("a revoked certificate is refused, on a connection that is open already too") {
  TestAgent agent(AgentTls());
  const auto array = Connect(agent.Options(ControllerTls()));
  const auto other = Connect(agent.Options(Ca().Issue("next", kControllerNames)));
  REQUIRE(array->volumes().GetCapacity().ok());
  std::ifstream file(ControllerTls().certificate);
  agent.Revoke({std::istreambuf_iterator<char>(file), {}});
  CHECK(absl::IsPermissionDenied(array->volumes().GetCapacity().status()));
  CHECK(absl::IsPermissionDenied(array->CheckServing(kLong)));
  CHECK(other->volumes().GetCapacity().ok());
}

TEST_CASE("a reader reads all but the secrets, and changes nothing") {
  RemoteArrayFixture fixture;
  const VolumeId volume = fixture.MustCreate("v");
  REQUIRE(fixture.array->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  const auto reader =
      Connect(fixture.agent.Options(Ca().Issue("reader", "DNS:reader.c1.cluster.lunkeeper.io")));
  CHECK(reader->CheckServing(kLong).ok());
  CHECK(reader->volumes().GetVolume(volume).ok());
  CHECK(reader->volumes().ListVolumes("", 0)->items.size() == 1);
  CHECK(reader->volumes().ListSnapshots({}, "", 0).ok());
  CHECK(reader->volumes().GetCapacity().ok());
  CHECK(reader->fences().ListFences().ok());
  CHECK(reader->grants().ListSessions().ok());
  const auto grants = reader->grants().ListGrants({});
  REQUIRE(grants->size() == 1);
  CHECK(grants->front().connection.chap.secret.empty());
  CHECK_FALSE(grants->front().connection.target_chap.user.empty());
  CHECK(grants->front().connection.target_chap.secret.empty());

  VolumeSpec spec;
  spec.name = "w";
  CHECK(absl::IsPermissionDenied(reader->volumes().CreateVolume(spec).status()));
  CHECK(absl::IsPermissionDenied(reader->volumes().DeleteVolume(volume)));
  CHECK(absl::IsPermissionDenied(reader->volumes().ExpandVolume(volume, 1 << 30).status()));
  CHECK(absl::IsPermissionDenied(reader->volumes().CreateSnapshot("s", volume).status()));
  CHECK(absl::IsPermissionDenied(reader->volumes().DeleteSnapshot(SnapshotId("a1-s1"))));
  CHECK(absl::IsPermissionDenied(
      reader->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).status()));
  CHECK(absl::IsPermissionDenied(
      reader->grants().ReleaseGrant(volume, kNodeA, GrantOwner::kNode, kAnyGeneration)));
  CHECK(absl::IsPermissionDenied(reader->fences().BeginTerm("reader").status()));
  CHECK(absl::IsPermissionDenied(reader->fences().FenceNode(1, {kNodeA, {volume}}).status()));
  CHECK(absl::IsPermissionDenied(reader->fences().UnfenceNode(1, kNodeA, 1)));
  CHECK(absl::IsPermissionDenied(reader->fences().OpenHeartbeatLun({kNodeA}).status()));
  CHECK(fixture.fake.ListGrants({})->size() == 1);
}

TEST_CASE("a cluster sees and touches nothing of another's") {
  RemoteArrayFixture fixture;
  const VolumeId volume = fixture.MustCreate("v");
  const auto other =
      Connect(fixture.agent.Options(Ca().Issue("other", "DNS:controller.c2.cluster.lunkeeper.io")));
  CHECK(absl::IsNotFound(other->volumes().GetVolume(volume).status()));
  CHECK(other->volumes().ListVolumes("", 0)->items.empty());
  CHECK(absl::IsNotFound(other->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).status()));
  CHECK(other->volumes().DeleteVolume(volume).ok());  // there is no such volume
  CHECK(fixture.array->volumes().GetVolume(volume).ok());
}

TEST_CASE("an agent of another array than meant refuses every call") {
  RemoteArrayFixture fixture;
  RemoteArrayOptions options = fixture.agent.Options(ControllerTls());
  options.name = "a2";
  const auto array = Connect(options);
  VolumeSpec spec;
  spec.name = "v";
  const absl::Status refused = array->volumes().CreateVolume(spec).status();
  CHECK(absl::IsUnavailable(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("a1") && Catch::Contains("a2"));
  CHECK(fixture.fake.ListVolumes("", 0)->items.empty());
}

TEST_CASE("texts that no client of ours sends are refused") {
  RemoteArrayFixture fixture;
  CHECK(absl::IsInvalidArgument(fixture.array->volumes().GetVolume(VolumeId("a\nb")).status()));
  CHECK(
      absl::IsInvalidArgument(fixture.array->volumes().GetVolume(VolumeId(std::string(257, 'x'))).status()));
  CHECK(
      absl::IsInvalidArgument(fixture.array->fences()
                                  .FenceNode(1, {kNodeA, {VolumeId("fine"), VolumeId(std::string("\0", 1))}})
                                  .status()));
  VolumeSpec spec;
  spec.name = "a\tb";
  CHECK(absl::IsInvalidArgument(fixture.array->volumes().CreateVolume(spec).status()));
}

TEST_CASE("an agent that is restarted in the middle of a call is found again") {
  RemoteArrayFixture fixture;
  const VolumeId volume = fixture.MustCreate("v");
  REQUIRE(fixture.array->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  auto waiting = std::async(std::launch::async,
                            [&] { return fixture.array->grants().AcquireGrant(For(volume, kNodeB), kLong); });
  REQUIRE(Eventually([&] { return fixture.fake.Waiting() == 1; }));
  fixture.agent.Stop();
  const absl::Status cut = waiting.get().status();
  CHECK(absl::IsUnavailable(cut));
  CHECK_THAT(std::string(cut.message()), Catch::Contains("array a1 at 127.0.0.1:"));
  const absl::Time began = absl::Now();
  CHECK(absl::IsUnavailable(fixture.array->volumes().GetVolume(volume).status()));
  CHECK(absl::Now() - began < absl::Seconds(5));
  fixture.agent.Start();
  REQUIRE(Eventually([&] { return fixture.array->volumes().GetVolume(volume).ok(); }));
}

TEST_CASE("an agent that takes calls and never answers costs no more than the deadline") {
  // A listener that accepts nothing: connections sit in its queue.
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  socklen_t length = sizeof(address);
  REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  REQUIRE(::listen(listener, 16) == 0);
  const auto array = Connect({.name = "a1",
                              .addresses = {absl::StrCat("127.0.0.1:", ntohs(address.sin_port))},
                              .server_name = "",
                              .tls = ControllerTls(),
                              .call_timeout = absl::Milliseconds(300)});
  const absl::Time began = absl::Now();
  const absl::Status slow = array->volumes().GetCapacity().status();
  CHECK(absl::IsDeadlineExceeded(slow));
  CHECK_THAT(std::string(slow.message()), Catch::Contains("array a1 at") && Catch::Contains("300ms"));
  CHECK(absl::Now() - began < absl::Seconds(5));
  ::close(listener);
}

TEST_CASE("a replaced certificate is used by new connections, on both sides, without a restart") {
  const TestCa ca;
  const TlsFiles agent_files = ca.Issue("agent", kAgentNames);
  const TlsFiles client_files = ca.Issue("client", "DNS:reader.c1.cluster.lunkeeper.io");
  TestAgent agent(agent_files);
  RemoteArrayOptions options = agent.Options(client_files);
  const auto array = Connect(options);
  CHECK(absl::IsPermissionDenied(array->fences().BeginTerm("test").status()));
  ca.Issue("client", kControllerNames);
  // Each round is a new connection, so that the certificate of the moment is shown.
  REQUIRE(Eventually([&] {
    agent.Stop();
    agent.Start();
    REQUIRE(Eventually([&] { return array->volumes().GetCapacity().ok(); }));
    return array->fences().BeginTerm("test").ok();
  }));

  options.server_name = "new.example";
  CHECK(absl::IsUnavailable(Connect(options)->volumes().GetCapacity().status()));
  ca.Issue("agent", "DNS:new.example");
  REQUIRE(Eventually([&] { return Connect(options)->volumes().GetCapacity().ok(); }));
}

}  // namespace lunkeeper::testing
