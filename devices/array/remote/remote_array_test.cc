#include "devices/array/remote/remote_array.h"

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
#include "devices/array/remote/testing/test_agent.h"
#include "devices/array/remote/wire.h"

namespace lunkeeper {
namespace {

using testing::Eventually;
using testing::kAgentNames;
using testing::kControllerNames;
using testing::TestAgent;
using testing::TestCa;

const NodeId kNodeA("a.0000000000000001");
const NodeId kNodeB("b.0000000000000002");
constexpr absl::Duration kLong = absl::Seconds(30);

// Certificates are made once for all tests.
const TestCa& Ca() {
  static const TestCa ca;
  return ca;
}
const TlsFiles& AgentTls() {
  static const TlsFiles files = Ca().Issue("agent", kAgentNames);
  return files;
}
const TlsFiles& ControllerTls() {
  static const TlsFiles files = Ca().Issue("controller", kControllerNames);
  return files;
}

std::unique_ptr<RemoteArray> Connect(const RemoteArrayOptions& options) {
  auto made = MakeRemoteArray(options);
  INFO(made.status());
  REQUIRE(made.ok());
  return *std::move(made);
}

struct Fixture {
  TestAgent agent{AgentTls()};
  std::unique_ptr<RemoteArray> array = Connect(agent.Options(ControllerTls()));
  FakeArray& fake = agent.Of("c1");

  VolumeId MustCreate(const std::string& name) {
    VolumeSpec spec;
    spec.name = name;
    spec.size_bytes = 1 << 20;
    const auto made = array->volumes().CreateVolume(spec);
    INFO(made.status());
    REQUIRE(made.ok());
    return made->id;
  }
};

void CheckSame(const Volume& a, const Volume& b) {
  CHECK(a.id == b.id);
  CHECK(a.spec == b.spec);
  CHECK(a.serial == b.serial);
  CHECK(absl::ToUnixNanos(a.created) == absl::ToUnixNanos(b.created));
}

void CheckSame(const Snapshot& a, const Snapshot& b) {
  CHECK(a.id == b.id);
  CHECK(a.name == b.name);
  CHECK(a.source == b.source);
  CHECK(a.size_bytes == b.size_bytes);
  CHECK(absl::ToUnixNanos(a.created) == absl::ToUnixNanos(b.created));
  CHECK(a.ready == b.ready);
}

void CheckSame(const Grant& a, const Grant& b) {
  CHECK(a.volume == b.volume);
  CHECK(a.node == b.node);
  CHECK(a.access == b.access);
  CHECK(a.owner == b.owner);
  CHECK(a.generation == b.generation);
  CHECK((a.connection == b.connection));
  CHECK(a.serial == b.serial);
  CHECK(a.size_bytes == b.size_bytes);
  CHECK(a.durability == b.durability);
}

void CheckSame(const FenceRecord& a, const FenceRecord& b) {
  CHECK(a.node == b.node);
  CHECK(a.generation == b.generation);
  CHECK(a.term == b.term);
  CHECK(a.volumes == b.volumes);
}

GrantRequest For(const VolumeId& volume, const NodeId& node) {
  GrantRequest request;
  request.volume = volume;
  request.node = node;
  return request;
}

}  // namespace

TEST_CASE("volumes and snapshots are the same from afar as from nearby") {
  Fixture fixture;
  VolumeSpec spec;
  spec.name = "v";
  spec.size_bytes = 3 << 20;
  spec.provisioning = Provisioning::kThick;
  spec.durability = Durability::kSync;
  const auto volume = fixture.array->volumes().CreateVolume(spec);
  REQUIRE(volume.ok());
  CheckSame(*volume, *fixture.fake.GetVolume(volume->id));
  CheckSame(*fixture.array->volumes().GetVolume(volume->id), *volume);
  CHECK(fixture.array->volumes().CreateVolume(spec)->id == volume->id);
  CHECK(fixture.array->volumes().ExpandVolume(volume->id, 5 << 20)->spec.size_bytes == 5 << 20);

  const auto snapshot = fixture.array->volumes().CreateSnapshot("s", volume->id);
  REQUIRE(snapshot.ok());
  CheckSame(*snapshot, *fixture.fake.GetSnapshot(snapshot->id));
  CheckSame(*fixture.array->volumes().GetSnapshot(snapshot->id), *snapshot);
  VolumeSpec clone;
  clone.name = "clone";
  clone.size_bytes = 5 << 20;
  clone.source_snapshot = snapshot->id;
  const auto cloned = fixture.array->volumes().CreateVolume(clone);
  REQUIRE(cloned.ok());
  CHECK(cloned->spec.source_snapshot == snapshot->id);

  const auto near = fixture.fake.GetCapacity();
  const auto far = fixture.array->volumes().GetCapacity();
  REQUIRE(far.ok());
  CHECK(far->total_bytes == near->total_bytes);
  CHECK(far->available_bytes == near->available_bytes);
  CHECK(far->smallest_volume_bytes == near->smallest_volume_bytes);
  CHECK(far->largest_volume_bytes == near->largest_volume_bytes);

  CHECK(fixture.array->volumes().DeleteSnapshot(snapshot->id).ok());
  CHECK(fixture.array->volumes().DeleteVolume(volume->id).ok());
  CHECK(fixture.array->volumes().DeleteVolume(volume->id).ok());
  CHECK(absl::IsNotFound(fixture.fake.GetVolume(volume->id).status()));
}

TEST_CASE("lists come in pages from afar too") {
  Fixture fixture;
  for (int i = 0; i < 5; ++i) fixture.MustCreate(absl::StrCat("v", i));
  const auto first = fixture.array->volumes().ListVolumes("", 2);
  REQUIRE(first.ok());
  CHECK(first->items.size() == 2);
  const auto rest = fixture.array->volumes().ListVolumes(first->next_token, 0);
  REQUIRE(rest.ok());
  CHECK(rest->items.size() == 3);
  CHECK(rest->next_token.empty());
  const VolumeId source = first->items.front().id;
  for (int i = 0; i < 3; ++i)
    REQUIRE(fixture.array->volumes().CreateSnapshot(absl::StrCat("s", i), source).ok());
  const auto snapshots = fixture.array->volumes().ListSnapshots(source, "", 2);
  REQUIRE(snapshots.ok());
  CHECK(snapshots->items.size() == 2);
  CHECK(fixture.array->volumes().ListSnapshots(source, snapshots->next_token, 2)->items.size() == 1);
}

TEST_CASE("more volumes than one answer holds are listed all the same") {
  Fixture fixture;
  VolumeSpec spec;
  spec.size_bytes = 1 << 20;
  for (int i = 0; i < 1500; ++i) {
    spec.name = absl::StrCat("v", i);
    REQUIRE(fixture.fake.CreateVolume(spec).ok());
  }
  size_t seen = 0;
  std::string token;
  do {
    const auto page = fixture.array->volumes().ListVolumes(token, 0);
    REQUIRE(page.ok());
    CHECK(page->items.size() <= 1000);
    seen += page->items.size();
    token = page->next_token;
  } while (!token.empty());
  CHECK(seen == 1500);
}

TEST_CASE("grants, terms and fences are the same from afar as from nearby") {
  Fixture fixture;
  const VolumeId volume = fixture.MustCreate("v");
  GrantRequest request = For(volume, kNodeA);
  request.access = Access::kSharedWrite;
  request.owner = GrantOwner::kOrchestrator;
  request.most = 1;
  const auto grant = fixture.array->grants().AcquireGrant(request, absl::ZeroDuration());
  REQUIRE(grant.ok());
  CHECK_FALSE(grant->connection.chap.secret.empty());
  CheckSame(*grant, fixture.fake.ListGrants({volume, kNodeA})->front());
  request.volume = fixture.MustCreate("w");
  CHECK(absl::IsResourceExhausted(
      fixture.array->grants().AcquireGrant(request, absl::ZeroDuration()).status()));
  CheckSame(fixture.array->grants().ListGrants({{}, kNodeA})->front(), *grant);
  CHECK(fixture.array->grants().ListGrants({{}, kNodeB})->empty());
  CHECK(fixture.array->grants().ReleaseGrant(volume, kNodeA, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(fixture.array->grants()
            .ReleaseGrant(volume, kNodeA, GrantOwner::kOrchestrator, grant->generation + 1)
            .ok());
  CHECK(fixture.fake.ListGrants({})->size() == 1);
  CHECK(fixture.array->grants()
            .ReleaseGrant(volume, kNodeA, GrantOwner::kOrchestrator, grant->generation)
            .ok());
  CHECK(fixture.fake.ListGrants({})->empty());

  REQUIRE(fixture.array->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  const auto sessions = fixture.array->grants().ListSessions();
  REQUIRE(sessions.ok());
  CHECK(sessions->size() == fixture.fake.ListSessions()->size());
  const auto term = fixture.array->fences().BeginTerm("test");
  REQUIRE(term.ok());
  const auto fence = fixture.array->fences().FenceNode(*term, kNodeA, {volume});
  REQUIRE(fence.ok());
  CheckSame(*fence, fixture.fake.ListFences()->front());
  CheckSame(fixture.array->fences().ListFences()->front(), *fence);
  CHECK(fixture.fake.ListGrants({})->empty());
  CHECK(
      absl::IsFailedPrecondition(fixture.array->fences().UnfenceNode(*term, kNodeA, fence->generation + 1)));
  CHECK(fixture.array->fences().UnfenceNode(*term, kNodeA, fence->generation).ok());
  CHECK(fixture.fake.ListFences()->empty());
}

TEST_CASE("heartbeat LUNs and their heartbeats are the same from afar as from nearby") {
  Fixture fixture;
  CHECK((*fixture.array->fences().OpenHeartbeatLun(kNodeA) == *fixture.fake.OpenHeartbeatLun(kNodeA)));
  fixture.fake.LandHeartbeat(kNodeA);
  const auto heartbeats = fixture.array->fences().ListHeartbeats();
  REQUIRE((heartbeats.ok() && heartbeats->size() == 1));
  CHECK((heartbeats->front().node == kNodeA && heartbeats->front().sequence == 1));
}

TEST_CASE("every error of the array arrives with its own code and words") {
  Fixture fixture;
  for (int code = 1; code <= 15; ++code) {
    const absl::Status said(static_cast<absl::StatusCode>(code),
                            absl::StrCat("volume v: \"quoted\", 100 %, zwölf: ", std::string(3000, 'x')));
    fixture.fake.FailWith(said);
    CHECK(fixture.array->volumes().GetCapacity().status() == said);
    CHECK(fixture.array->grants().ListGrants({}).status() == said);
  }
}

TEST_CASE("a request waits at the agent, and gets the volume when it is released") {
  Fixture fixture;
  const VolumeId volume = fixture.MustCreate("v");
  REQUIRE(fixture.array->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  CHECK(absl::IsFailedPrecondition(
      fixture.array->grants().AcquireGrant(For(volume, kNodeB), absl::ZeroDuration()).status()));
  const auto timed_out =
      fixture.array->grants().AcquireGrant(For(volume, kNodeB), absl::Milliseconds(20)).status();
  CHECK(absl::IsDeadlineExceeded(timed_out));
  CHECK_THAT(std::string(timed_out.message()), Catch::Contains(kNodeA.value()));

  auto second = std::async(std::launch::async,
                           [&] { return fixture.array->grants().AcquireGrant(For(volume, kNodeB), kLong); });
  REQUIRE(Eventually([&] { return fixture.fake.Waiting() == 1; }));
  REQUIRE(fixture.array->grants().ReleaseGrant(volume, kNodeA, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(second.get().ok());
}

TEST_CASE("a wait ends, and nothing is granted, when its caller has gone") {
  Fixture fixture;
  const VolumeId volume = fixture.MustCreate("v");
  REQUIRE(fixture.array->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  std::atomic<bool> gone = false;
  GrantRequest request = For(volume, kNodeB);
  request.abandoned = [&] { return gone.load(); };
  auto waiting =
      std::async(std::launch::async, [&] { return fixture.array->grants().AcquireGrant(request, kLong); });
  REQUIRE(Eventually([&] { return fixture.fake.Waiting() == 1; }));
  gone = true;
  CHECK(absl::IsCancelled(waiting.get().status()));
  REQUIRE(Eventually([&] { return fixture.fake.Waiting() == 0; }));
  REQUIRE(fixture.array->grants().ReleaseGrant(volume, kNodeA, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(fixture.fake.ListGrants({})->empty());
}

TEST_CASE("200 waiting requests keep no other waiting") {
  Fixture fixture;
  const VolumeId volume = fixture.MustCreate("v");
  REQUIRE(fixture.array->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  std::atomic<bool> gone = false;
  GrantRequest request = For(volume, kNodeB);
  request.abandoned = [&] { return gone.load(); };
  std::vector<std::thread> waiting;
  for (int i = 0; i < 200; ++i)
    waiting.emplace_back(
        [&] { fixture.array->grants().AcquireGrant(request, kLong).status().IgnoreError(); });
  REQUIRE(Eventually([&] { return fixture.fake.Waiting() == 200; }));
  const absl::Time began = absl::Now();
  CHECK(fixture.array->volumes().GetVolume(volume).ok());
  CHECK(absl::Now() - began < absl::Seconds(5));
  gone = true;
  for (std::thread& thread : waiting) thread.join();
}

TEST_CASE("a wait too many is told so, and is no other call's trouble") {
  TestAgent agent(AgentTls(), "a1", 1);
  const auto array = Connect(agent.Options(ControllerTls()));
  VolumeSpec spec;
  spec.name = "v";
  const VolumeId volume = array->volumes().CreateVolume(spec)->id;
  REQUIRE(array->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  auto first = std::async(std::launch::async,
                          [&] { return array->grants().AcquireGrant(For(volume, kNodeB), kLong); });
  REQUIRE(Eventually([&] { return agent.Of().Waiting() == 1; }));
  CHECK(absl::IsUnavailable(array->grants().AcquireGrant(For(volume, NodeId("c.3")), kLong).status()));
  CHECK(array->volumes().GetVolume(volume).ok());
  REQUIRE(array->grants().ReleaseGrant(volume, kNodeA, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(first.get().ok());
}

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

TEST_CASE("a reader reads all but the secrets, and changes nothing") {
  Fixture fixture;
  const VolumeId volume = fixture.MustCreate("v");
  REQUIRE(fixture.array->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  const auto reader =
      Connect(fixture.agent.Options(Ca().Issue("reader", "DNS:reader.c1.cluster.lunkeeper.io")));
  CHECK(reader->Check(kLong).ok());
  CHECK(reader->volumes().GetVolume(volume).ok());
  CHECK(reader->volumes().ListVolumes("", 0)->items.size() == 1);
  CHECK(reader->volumes().ListSnapshots({}, "", 0).ok());
  CHECK(reader->volumes().GetCapacity().ok());
  CHECK(reader->fences().ListFences().ok());
  CHECK(reader->grants().ListSessions().ok());
  const auto grants = reader->grants().ListGrants({});
  REQUIRE(grants->size() == 1);
  CHECK(grants->front().connection.chap.secret.empty());

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
  CHECK(absl::IsPermissionDenied(reader->fences().FenceNode(1, kNodeA, {volume}).status()));
  CHECK(absl::IsPermissionDenied(reader->fences().UnfenceNode(1, kNodeA, 1)));
  CHECK(absl::IsPermissionDenied(reader->fences().OpenHeartbeatLun(kNodeA).status()));
  CHECK(fixture.fake.ListGrants({})->size() == 1);
}

TEST_CASE("a cluster sees and touches nothing of another's") {
  Fixture fixture;
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
  Fixture fixture;
  RemoteArrayOptions options = fixture.agent.Options(ControllerTls());
  options.name = "a2";
  const auto array = Connect(options);
  VolumeSpec spec;
  spec.name = "v";
  const absl::Status refused = array->volumes().CreateVolume(spec).status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("a1") && Catch::Contains("a2"));
  CHECK(fixture.fake.ListVolumes("", 0)->items.empty());
}

TEST_CASE("texts that no client of ours sends are refused") {
  Fixture fixture;
  CHECK(absl::IsInvalidArgument(fixture.array->volumes().GetVolume(VolumeId("a\nb")).status()));
  CHECK(
      absl::IsInvalidArgument(fixture.array->volumes().GetVolume(VolumeId(std::string(257, 'x'))).status()));
  CHECK(absl::IsInvalidArgument(fixture.array->fences()
                                    .FenceNode(1, kNodeA, {VolumeId("fine"), VolumeId(std::string("\0", 1))})
                                    .status()));
  VolumeSpec spec;
  spec.name = "a\tb";
  CHECK(absl::IsInvalidArgument(fixture.array->volumes().CreateVolume(spec).status()));
  CHECK(absl::IsInvalidArgument(wire::From(array::v1::Grant()).status()));
}

TEST_CASE("an agent that is restarted in the middle of a call is found again") {
  Fixture fixture;
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
                              .address = absl::StrCat("127.0.0.1:", ntohs(address.sin_port)),
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

}  // namespace lunkeeper
