#include "devices/array/remote/remote_array.h"

#include <catch2/catch.hpp>
#include <future>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/test_host.h"
#include "devices/array/remote/testing/remote_array_fixture.h"
#include "devices/array/testing/array_contract.h"
#include "devices/array/testing/block_contract.h"
#include "devices/array/testing/group_contract.h"
#include "devices/array/testing/name_contract.h"

namespace lunkeeper::testing {
namespace {

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
  CHECK(a.limits == b.limits);
}

void CheckSame(const FenceRecord& a, const FenceRecord& b) {
  CHECK(a.node == b.node);
  CHECK(a.generation == b.generation);
  CHECK(a.term == b.term);
  CHECK(a.volumes == b.volumes);
}

}  // namespace

TEST_CASE("an array over the network keeps what arrays promise of volumes, grants and fences") {
  RemoteArrayFixture fixture;
  CheckArray(*fixture.array, {kNodeA, kNodeB, NodeId("node-c.0000000000000003")});
}

TEST_CASE("names are found from afar as from nearby") {
  RemoteArrayFixture fixture;
  FakeArray other;
  CheckNames(*fixture.array, other);
}

TEST_CASE("volumes and snapshots are the same from afar as from nearby") {
  RemoteArrayFixture fixture;
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
  CHECK(far->creatable_bytes == near->creatable_bytes);

  CHECK(fixture.array->volumes().DeleteSnapshot(snapshot->id).ok());
  CHECK(fixture.array->volumes().DeleteVolume(volume->id).ok());
  CHECK(fixture.array->volumes().DeleteVolume(volume->id).ok());
  CHECK(absl::IsNotFound(fixture.fake.GetVolume(volume->id).status()));
}

TEST_CASE("lists come in pages from afar too") {
  RemoteArrayFixture fixture;
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
  RemoteArrayFixture fixture;
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
  RemoteArrayFixture fixture;
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
  const auto fence = fixture.array->fences().FenceNode(*term, {kNodeA, {volume}});
  REQUIRE(fence.ok());
  CheckSame(*fence, fixture.fake.ListFences()->front());
  CheckSame(fixture.array->fences().ListFences()->front(), *fence);
  CHECK(fixture.fake.ListGrants({})->empty());
  CHECK(
      absl::IsFailedPrecondition(fixture.array->fences().UnfenceNode(*term, kNodeA, fence->generation + 1)));
  CHECK(fixture.array->fences().UnfenceNode(*term, kNodeA, fence->generation).ok());
  CHECK(fixture.fake.ListFences()->empty());
}

TEST_CASE("sessions that nobody sees are told from afar to who asks for that, and are an error to others") {
  RemoteArrayFixture fixture;
  const VolumeId seen = fixture.MustCreate("v"), hidden = fixture.MustCreate("w");
  for (const VolumeId& volume : {seen, hidden})
    REQUIRE(fixture.array->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  fixture.fake.HideSessions(hidden, true);
  const auto sessions = fixture.array->grants().ListSeenSessions();
  REQUIRE(sessions.status() == absl::OkStatus());
  REQUIRE((sessions->sessions.size() == 1 && sessions->unseen.size() == 1));
  CHECK(sessions->sessions[0].volume == seen);
  CHECK(sessions->unseen[0].why == "its tgtd 1 does not answer");
  CHECK(sessions->unseen[0].grants == std::vector<std::pair<VolumeId, NodeId>>{{hidden, kNodeA}});
  CHECK(absl::IsUnavailable(fixture.array->grants().ListSessions().status()));
}

TEST_CASE("heartbeat LUNs and their heartbeats are the same from afar as from nearby") {
  RemoteArrayFixture fixture;
  CHECK((*fixture.array->fences().OpenHeartbeatLun({kNodeA}) == *fixture.fake.OpenHeartbeatLun({kNodeA})));
  fixture.fake.LandHeartbeat(kNodeA);
  const auto heartbeats = fixture.array->fences().ListHeartbeats();
  REQUIRE((heartbeats.ok() && heartbeats->size() == 1));
  CHECK((heartbeats->front().node == kNodeA && heartbeats->front().sequence == 1));
}

TEST_CASE("every error of the array arrives with its own code and words") {
  RemoteArrayFixture fixture;
  for (int code = 1; code <= 15; ++code) {
    const absl::Status said(static_cast<absl::StatusCode>(code),
                            absl::StrCat("volume v: \"quoted\", 100 %, zwölf: ", std::string(3000, 'x')));
    fixture.fake.FailWith(said);
    CHECK(fixture.array->volumes().GetCapacity().status() == said);
    CHECK(fixture.array->grants().ListGrants({}).status() == said);
  }
}

TEST_CASE("a request waits at the agent, and gets the volume when it is released") {
  RemoteArrayFixture fixture;
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
  RemoteArrayFixture fixture;
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
  RemoteArrayFixture fixture;
  const VolumeId volume = fixture.MustCreate("v");
  REQUIRE(fixture.array->grants().AcquireGrant(For(volume, kNodeA), absl::ZeroDuration()).ok());
  std::atomic<bool> gone = false;
  std::vector<std::thread> waiting;
  for (int i = 0; i < 200; ++i)
    waiting.emplace_back([&, i] {
      GrantRequest request = For(volume, NodeId(absl::StrCat("n", i, ".1")));
      request.abandoned = [&] { return gone.load(); };
      fixture.array->grants().AcquireGrant(request, kLong).status().IgnoreError();
    });
  REQUIRE(Eventually([&] { return fixture.fake.Waiting() == 200; }));
  const absl::Time began = absl::Now();
  CHECK(fixture.array->volumes().GetVolume(volume).ok());
  CHECK(absl::Now() - began < absl::Seconds(5));
  gone = true;
  for (std::thread& thread : waiting) thread.join();
}

TEST_CASE("a wait too many is told so, and is no other call's trouble") {
  TestAgent agent(AgentTls(), "a1", {.all = 1});
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

namespace {

// Requests of this node, all of which wait for a volume that another node holds, until this is destroyed.
class Waiters {
 public:
  Waiters(RemoteArray& array, TestAgent& agent, const VolumeId& volume, const NodeId& node, size_t count) {
    const size_t before = agent.Of().Waiting();
    for (size_t i = 0; i < count; ++i)
      threads_.emplace_back([&array, this, volume, node] {
        GrantRequest request = For(volume, node);
        request.abandoned = [this] { return gone_.load(); };
        array.grants().AcquireGrant(request, kLong).status().IgnoreError();
      });
    REQUIRE(Eventually([&] { return agent.Of().Waiting() == before + count; }));
  }
  ~Waiters() {
    gone_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> gone_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE("a node or a cluster that waits for all it can leaves others room, and free volumes need none") {
  TestAgent agent(AgentTls(), "a1", {.all = 5, .per_cluster = 4, .per_machine = 2});
  const auto array = Connect(agent.Options(ControllerTls()));
  const auto make = [](RemoteArray& at, const std::string& name) {
    VolumeSpec spec;
    spec.name = name;
    return at.volumes().CreateVolume(spec)->id;
  };
  const VolumeId held = make(*array, "held"), free = make(*array, "free"), other = make(*array, "other");
  REQUIRE(array->grants().AcquireGrant(For(held, kNodeA), absl::ZeroDuration()).ok());
  REQUIRE(array->grants().AcquireGrant(For(other, kNodeA), absl::ZeroDuration()).ok());
  const NodeId hostile("h.0000000000000001"), its_other_life("h.0000000000000002");
  const auto try_for = [&](const VolumeId& volume, const NodeId& node) {
    return array->grants().AcquireGrant(For(volume, node), kLong).status();
  };
  const Waiters machine(*array, agent, held, hostile, 2);
  // One that is in the line, and one that nobody waits for yet.
  CHECK(absl::IsUnavailable(try_for(held, its_other_life)));
  CHECK(absl::IsUnavailable(try_for(other, its_other_life)));
  const Waiters cluster(*array, agent, held, kNodeB, 2);
  CHECK(absl::IsUnavailable(try_for(other, NodeId("c.0000000000000003"))));
  CHECK(try_for(free, hostile).ok());

  const auto foreign =
      Connect(agent.Options(Ca().Issue("foreign", "DNS:controller.c2.cluster.lunkeeper.io")));
  const VolumeId theirs = make(*foreign, "theirs");
  REQUIRE(foreign->grants().AcquireGrant(For(theirs, kNodeA), absl::ZeroDuration()).ok());
  auto waiting = std::async(std::launch::async,
                            [&] { return foreign->grants().AcquireGrant(For(theirs, kNodeB), kLong); });
  REQUIRE(Eventually([&] { return agent.Of("c2").Waiting() == 1; }));
  REQUIRE(foreign->grants().ReleaseGrant(theirs, kNodeA, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(waiting.get().ok());
}

TEST_CASE_METHOD(RemoteArrayFixture, "an array over the network keeps what groups of snapshots promise") {
  const auto other =
      Connect(agent.Options(Ca().Issue("controller-c2", "DNS:controller.c2.cluster.lunkeeper.io")));
  CheckGroupLife(*array);
  CheckGroupRefusals(*array);
  CheckRestoreFromMember(*array);
  CheckGroupsAreSeparate(*array, *other);
}

TEST_CASE_METHOD(RemoteArrayFixture, "blocks of snapshots are listed from afar as from nearby") {
  const auto other =
      Connect(agent.Options(Ca().Issue("controller-c2", "DNS:controller.c2.cluster.lunkeeper.io")));
  const BlockWriter node = {
      .write = [&](const VolumeId& volume, uint64_t offset) { fake.WriteBlock(volume, offset); },
      .discard = [&](const VolumeId& volume, uint64_t offset) { fake.WriteBlock(volume, offset, true); }};
  CheckBlockLists(*array, node);
  CheckBlocksOfGrownVolume(*array, node);
  CheckBlockRefusals(*array, *other);
}

}  // namespace lunkeeper::testing
