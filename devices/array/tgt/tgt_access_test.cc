#include <signal.h>

#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

#include "absl/strings/match.h"
#include "devices/array/testing/array_contract.h"
#include "devices/array/tgt/sqlite.h"
#include "devices/array/tgt/testing/array_fixture.h"

namespace lunkeeper::testing {
namespace {

const NodeId kA("node-a.1"), kB("node-b.1"), kC("node-c.1");
const absl::Duration kAtOnce = absl::ZeroDuration();

TEST_CASE_METHOD(ClusterFixture,
                 "a volume is granted to one node, and the same node is answered with the same grant") {
  const VolumeId volume = Make("v");
  const auto first = Acquire(volume, kA);
  REQUIRE(first.ok());
  const auto again = Acquire(volume, kA);
  REQUIRE(again.ok());
  CHECK(again->generation == first->generation);
  CHECK(again->connection == first->connection);
  const auto other = Acquire(volume, kB);
  CHECK(absl::IsFailedPrecondition(other.status()));
  CHECK(absl::StrContains(other.status().message(), kA.value()));
  CHECK(absl::IsFailedPrecondition(Acquire(volume, kA, kAtOnce, Access::kReadOnly).status()));
  CHECK(absl::IsDeadlineExceeded(Acquire(volume, kB, absl::Milliseconds(50)).status()));
  CHECK(absl::IsNotFound(Acquire(VolumeId("a1-v0000000000000000"), kA).status()));
  CHECK(absl::IsInvalidArgument(Acquire(volume, NodeId("a,b")).status()));
}

TEST_CASE_METHOD(ClusterFixture, "a real array keeps what arrays promise of volumes, grants and fences") {
  CheckArray(*array, {kA, kB, kC});
}

TEST_CASE_METHOD(ClusterFixture,
                 "a node gets no more volumes than it may have, also when it asks for all at once") {
  constexpr size_t kMost = 3;
  std::vector<VolumeId> volumes;
  for (int i = 0; i < 8; ++i) volumes.push_back(Make(absl::StrCat("v", i)));
  std::atomic<size_t> granted = 0, refused = 0;
  {
    std::vector<std::jthread> askers;
    for (const VolumeId& volume : volumes)
      askers.emplace_back([&, volume] {
        const auto status =
            array->grants().AcquireGrant({.volume = volume, .node = kA, .most = kMost}, kAtOnce).status();
        granted += status.ok();
        refused += absl::IsResourceExhausted(status);
      });
  }
  CHECK(granted == kMost);
  CHECK(refused == volumes.size() - kMost);
  const VolumeId held = array->grants().ListGrants({})->front().volume;
  CHECK(array->grants().AcquireGrant({.volume = held, .node = kA, .most = kMost}, kAtOnce).ok());
  CHECK(array->grants().AcquireGrant({.volume = Make("w"), .node = kB, .most = 1}, kAtOnce).ok());
}

TEST_CASE_METHOD(ClusterFixture, "a machine gets a volume for few of the instances that it makes up") {
  const VolumeId shared = Make("v");
  const auto ask = [&](const std::string& machine, int instance) {
    const NodeId node(absl::StrCat(machine, ".", absl::Hex(instance, absl::kZeroPad16)));
    return Acquire(shared, node, kAtOnce, Access::kSharedWrite).status();
  };
  for (int i = 0; i < 16; ++i) CHECK(ask("n1", i).ok());
  CHECK(absl::IsResourceExhausted(ask("n1", 16)));
  CHECK(ask("n1", 3).ok());  // it has it
  CHECK(ask("n1.e1", 0).ok());
  CHECK(ask("n2", 0).ok());
}

TEST_CASE_METHOD(ClusterFixture, "those who wait for a volume get it one after another as it is released") {
  const VolumeId volume = Make("v");
  REQUIRE(Acquire(volume, kA).ok());
  std::atomic<int> holders{1};
  std::atomic<bool> two_at_once{false};
  std::vector<absl::Status> answers(4);
  std::vector<std::thread> nodes;
  for (size_t i = 0; i < answers.size(); ++i) {
    nodes.emplace_back([&, i] {
      const NodeId node("waiter-" + std::to_string(i));
      answers[i] = Acquire(volume, node, absl::Seconds(30)).status();
      if (++holders > 1) two_at_once = true;
      --holders;
      if (answers[i].ok()) answers[i] = Release(volume, node);
    });
  }
  --holders;
  CHECK(Release(volume, kA).ok());
  for (std::thread& node : nodes) node.join();
  CHECK(answers == std::vector<absl::Status>(4));
  CHECK_FALSE(two_at_once);
}

TEST_CASE_METHOD(ClusterFixture,
                 "readers and shared writers go together, each with a target and a secret of its own") {
  const VolumeId volume = Make("v");
  const auto a = Acquire(volume, kA, kAtOnce, Access::kSharedWrite);
  const auto b = Acquire(volume, kB, kAtOnce, Access::kReadOnly);
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK(a->connection.target != b->connection.target);
  CHECK(a->connection.chap.secret != b->connection.chap.secret);
  CHECK(absl::IsFailedPrecondition(Acquire(volume, kC).status()));
  const auto writer = PlainInitiator::Login(a->connection);
  const auto reader = PlainInitiator::Login(b->connection);
  REQUIRE(writer.ok());
  REQUIRE(reader.ok());
  CHECK((*writer)->Write(3, 'w'));
  CHECK((*reader)->Read(3) == 'w');
  CHECK_FALSE((*reader)->Write(3, 'r'));
  CHECK(absl::IsFailedPrecondition(Acquire(volume, kC, kAtOnce, Access::kSharedWrite).status()));
}

TEST_CASE_METHOD(ClusterFixture,
                 "a volume is granted for what it was made for alone, and a refusal waits for nobody") {
  VolumeSpec spec = Spec("readers", 16);
  spec.uses.Add(Access::kReadOnly, VolumeMode::kFilesystem);
  spec.fs_type = "xfs";
  spec.claim = "db/data-0";
  const auto volume = array->volumes().CreateVolume(spec);
  REQUIRE(volume.ok());
  CHECK(volume->spec == spec);
  CHECK(array->volumes().CreateVolume(spec)->id == volume->id);
  spec.fs_type = "ext4";
  CHECK(absl::IsAlreadyExists(array->volumes().CreateVolume(spec).status()));
  REQUIRE(Acquire(volume->id, kA, kAtOnce, Access::kReadOnly).ok());
  CHECK(Acquire(volume->id, kB, kAtOnce, Access::kReadOnly).ok());
  for (const Access access : {Access::kExclusive, Access::kSharedWrite}) {
    const absl::Status refused = Acquire(volume->id, kC, absl::InfiniteDuration(), access).status();
    CHECK(absl::IsFailedPrecondition(refused));
    CHECK(absl::StrContains(refused.message(), "made for read-only filesystem"));
  }
  const absl::Status raw =
      array->grants()
          .AcquireGrant(
              {.volume = volume->id, .node = kC, .access = Access::kReadOnly, .mode = VolumeMode::kBlock},
              kAtOnce)
          .status();
  CHECK(absl::IsFailedPrecondition(raw));
}

TEST_CASE_METHOD(ClusterFixture,
                 "a volume of which nothing is known takes on its first use that writes, for good") {
  const VolumeId volume = Make("v");
  const auto uses = [&] { return array->volumes().GetVolume(volume)->spec.uses; };
  REQUIRE(Acquire(volume, kA, kAtOnce, Access::kReadOnly).ok());
  CHECK(uses().empty());
  CHECK(absl::IsFailedPrecondition(Acquire(volume, kB, kAtOnce, Access::kSharedWrite).status()));
  REQUIRE(Release(volume, kA).ok());
  REQUIRE(Acquire(volume, kA).ok());
  REQUIRE(Release(volume, kA).ok());
  CHECK(uses().ToText() == "exclusive filesystem, exclusive block");
  array.reset();
  Close();
  REQUIRE(Open().ok());
  array = Cluster();
  CHECK(absl::IsFailedPrecondition(Acquire(volume, kA, kAtOnce, Access::kSharedWrite).status()));
  REQUIRE(Acquire(volume, kA, kAtOnce, Access::kReadOnly).ok());
  CHECK(absl::IsFailedPrecondition(Acquire(volume, kB, kAtOnce, Access::kReadOnly).status()));
}

TEST_CASE_METHOD(ClusterFixture, "a target proves itself to its node, by a secret that no other node has") {
  const VolumeId volume = Make("v");
  const auto a = Acquire(volume, kA);
  const auto b = Acquire(Make("w"), kB);
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK_FALSE(a->connection.target_chap.secret.empty());
  CHECK(a->connection.target_chap.secret != b->connection.target_chap.secret);
  CHECK(a->connection.target_chap.secret != a->connection.chap.secret);
  CHECK(Acquire(Make("x"), kA)->connection.target_chap == a->connection.target_chap);
  CHECK(PlainInitiator::Login(a->connection).ok());
  Connection other = a->connection;
  other.target_chap.secret = b->connection.target_chap.secret;
  CHECK_FALSE(PlainInitiator::Login(other).ok());
  other.target_chap = {};  // as an older node logs in
  CHECK(PlainInitiator::Login(other).ok());
  REQUIRE(::kill(TgtdProcess(options.control_port), SIGKILL) == 0);
  CHECK(Eventually([&] { return PlainInitiator::Login(a->connection).ok(); }));
  array.reset();
  Close();
  REQUIRE(Open().ok());
  array = Cluster();
  CHECK(Acquire(volume, kA)->connection == a->connection);
  REQUIRE(Release(volume, kA).ok());
  CHECK(Acquire(volume, kA)->connection.target_chap == a->connection.target_chap);
}

TEST_CASE_METHOD(ClusterFixture, "a grant from before targets proved themselves goes on as it was") {
  const VolumeId volume = Make("v");
  REQUIRE(Acquire(volume, kA).ok());
  array.reset();
  Close();
  Run("tgtadm -C " + std::to_string(options.control_port) +
      " --lld iscsi --op show --mode target >/dev/null");  // it runs on, with the target as it is
  {
    auto database = SqlDatabase::Open(options.pool_dir + "/catalogue.db", SqlDatabase::Mode::kReadWrite);
    REQUIRE((*database)->Change("UPDATE grants SET target_secret = ''", {}).ok());
  }
  REQUIRE(Open().ok());
  array = Cluster();
  const auto again = Acquire(volume, kA);
  REQUIRE(again.ok());
  CHECK(again->connection.target_chap.user.empty());
  CHECK(PlainInitiator::Login(again->connection).ok());
}

TEST_CASE_METHOD(ClusterFixture, "only the side that took a grant releases it") {
  const VolumeId volume = Make("v");
  REQUIRE(array->grants()
              .AcquireGrant({volume, kA, Access::kExclusive, GrantOwner::kOrchestrator}, kAtOnce)
              .ok());
  REQUIRE(Acquire(volume, kA).ok());
  CHECK(array->grants().ReleaseGrant(volume, kA, GrantOwner::kNode, kAnyGeneration).ok());
  CHECK(array->grants().ListGrants({.volume = volume, .node = {}})->size() == 1);
  CHECK(array->grants().ReleaseGrant(volume, kA, GrantOwner::kOrchestrator, kAnyGeneration).ok());
  CHECK(array->grants().ListGrants({})->empty());
  CHECK(array->grants().ReleaseGrant(volume, kA, GrantOwner::kOrchestrator, kAnyGeneration).ok());
}

TEST_CASE_METHOD(ClusterFixture, "a login needs the grant's own secret and the node's own name") {
  const auto a = Acquire(Make("va"), kA);
  const auto b = Acquire(Make("vb"), kB);
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  Connection wrong = a->connection;
  wrong.chap = b->connection.chap;
  CHECK(absl::IsPermissionDenied(PlainInitiator::Login(wrong).status()));
  wrong = a->connection;
  wrong.chap.secret[0] ^= 1;
  CHECK(absl::IsPermissionDenied(PlainInitiator::Login(wrong).status()));
  wrong = a->connection;
  wrong.chap = {};
  CHECK(absl::IsPermissionDenied(PlainInitiator::Login(wrong).status()));
  wrong = a->connection;
  wrong.initiator = b->connection.initiator;
  CHECK(absl::IsPermissionDenied(PlainInitiator::Login(wrong).status()));
  CHECK(PlainInitiator::Login(a->connection).status() == absl::OkStatus());
}

TEST_CASE_METHOD(ClusterFixture, "a fenced node loses the volumes named, gets no other, and keeps the rest") {
  const VolumeId moved = Make("moved"), kept = Make("kept"), other = Make("other");
  const auto grant = Acquire(moved, kA);
  const auto kept_grant = Acquire(kept, kA);
  REQUIRE(grant.ok());
  REQUIRE(kept_grant.ok());
  const auto victim = PlainInitiator::Login(grant->connection);
  const auto bystander = PlainInitiator::Login(kept_grant->connection);
  REQUIRE(victim.ok());
  REQUIRE(bystander.ok());
  const auto term = array->fences().BeginTerm("leader");
  REQUIRE(term.ok());
  const auto fence = array->fences().FenceNode(*term, {kA, {moved}});
  REQUIRE(fence.status() == absl::OkStatus());
  CHECK(fence->volumes == std::vector<VolumeId>{moved});
  CHECK_FALSE((*victim)->Write(1, 'z'));
  CHECK((*bystander)->Write(1, 'k'));
  CHECK(absl::IsPermissionDenied(PlainInitiator::Login(grant->connection).status()));
  CHECK(absl::IsFailedPrecondition(Acquire(other, kA, absl::Seconds(5)).status()));
  CHECK(Acquire(moved, kB).ok());
  CHECK(array->fences().ListFences()->size() == 1);

  SECTION("fencing more of its volumes keeps the generation") {
    const auto more = array->fences().FenceNode(*term, {kA, {kept}});
    REQUIRE(more.ok());
    CHECK(more->generation == fence->generation);
    CHECK(more->volumes.size() == 2);
    CHECK_FALSE((*bystander)->Write(1, 'k'));
  }
  SECTION("unfencing needs the generation in force, and restores nothing") {
    CHECK(absl::IsFailedPrecondition(array->fences().UnfenceNode(*term, kA, fence->generation + 1)));
    CHECK(absl::IsFailedPrecondition(Acquire(other, kA).status()));
    CHECK(array->fences().UnfenceNode(*term, kA, fence->generation).ok());
    CHECK(array->fences().UnfenceNode(*term, kA, fence->generation).ok());
    CHECK(Acquire(other, kA).ok());
    CHECK(absl::IsPermissionDenied(PlainInitiator::Login(grant->connection).status()));
  }
  SECTION("an older leader can neither fence nor unfence") {
    const auto newer = array->fences().BeginTerm("another leader");
    REQUIRE(newer.ok());
    CHECK(*newer > *term);
    CHECK(absl::IsFailedPrecondition(array->fences().FenceNode(*term, {kB, {moved}}).status()));
    CHECK(absl::IsFailedPrecondition(array->fences().UnfenceNode(*term, kA, fence->generation)));
    CHECK(array->fences().UnfenceNode(*newer, kA, fence->generation).ok());
  }
}

TEST_CASE_METHOD(ClusterFixture, "one who waits in line is told so when its node is fenced") {
  const VolumeId volume = Make("v");
  REQUIRE(Acquire(volume, kA).ok());
  absl::Status waited;
  std::thread waiter([&] { waited = Acquire(volume, kB, absl::Seconds(20)).status(); });
  const auto term = array->fences().BeginTerm("leader");
  REQUIRE(array->fences().FenceNode(*term, {kB, {volume}}).ok());
  waiter.join();
  CHECK(absl::IsFailedPrecondition(waited));
  CHECK(absl::StrContains(waited.message(), "fenced"));
}

TEST_CASE_METHOD(ClusterFixture, "no grant slips through while a fence is being carried out") {
  const VolumeId volume = Make("v");
  const auto term = array->fences().BeginTerm("leader");
  for (int round = 0; round < 20; ++round) {
    std::vector<Grant> granted;
    std::thread acquirer([&] {
      for (int i = 0; i < 5; ++i) {
        const auto grant = Acquire(volume, kA);
        if (grant.ok()) granted.push_back(*grant);
      }
    });
    const auto fence = array->fences().FenceNode(*term, {kA, {volume}});
    REQUIRE(fence.status() == absl::OkStatus());
    CHECK(array->grants().ListGrants({.volume = volume, .node = kA})->empty());
    acquirer.join();
    CHECK(array->grants().ListGrants({.volume = volume, .node = kA})->empty());
    for (const Grant& grant : granted) {
      CHECK(absl::IsPermissionDenied(PlainInitiator::Login(grant.connection).status()));
    }
    REQUIRE(array->fences().UnfenceNode(*term, kA, fence->generation).ok());
  }
}

TEST_CASE_METHOD(ClusterFixture, "a cluster sees and touches only what is its own") {
  const VolumeId volume = Make("v");
  REQUIRE(Acquire(volume, kA).ok());
  const auto other = Cluster("c2");
  CHECK(absl::IsNotFound(other->volumes().GetVolume(volume).status()));
  CHECK(other->volumes().ListVolumes("", 0)->items.empty());
  CHECK(other->grants().ListGrants({})->empty());
  CHECK(other->grants().ListGrants({.volume = volume, .node = {}})->empty());
  CHECK(other->volumes().DeleteVolume(volume).ok());
  CHECK(other->grants().ReleaseGrant(volume, kA, GrantOwner::kNode, kAnyGeneration).ok());
  const auto term = other->fences().BeginTerm("leader");
  CHECK(other->fences().FenceNode(*term, {kA, {volume}}).ok());
  CHECK(array->fences().ListFences()->empty());
  CHECK(array->grants().ListGrants({})->size() == 1);
  CHECK(other->volumes().CreateVolume(Spec("v", 16)).ok());
}

TEST_CASE_METHOD(ClusterFixture, "sessions are listed with what they have read and written") {
  const VolumeId volume = Make("v");
  const auto grant = Acquire(volume, kA);
  REQUIRE(grant.ok());
  CHECK(array->grants().ListSessions()->empty());
  const auto initiator = PlainInitiator::Login(grant->connection);
  REQUIRE(initiator.ok());
  CHECK((*initiator)->Write(1, 'x'));
  CHECK((*initiator)->Write(2, 'x'));
  CHECK((*initiator)->Read(1) == 'x');
  const auto sessions = array->grants().ListSessions();
  REQUIRE(sessions->size() == 1);
  CHECK(sessions->front().volume == volume);
  CHECK(sessions->front().node == kA);
  CHECK(sessions->front().writes == 2);
  CHECK(sessions->front().written_bytes == 1024);
  CHECK(sessions->front().read_bytes >= 512);
}

}  // namespace
}  // namespace lunkeeper::testing
