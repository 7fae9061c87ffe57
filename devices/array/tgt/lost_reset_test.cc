// A node that is cut off while its LUN reset waits for a write, and logs in again: tgtd answers only its
// second reset, and lists the session of the first for as long as it lives (docs/tgt.md).

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "devices/array/tgt/empty_targets.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/testing/raw_session.h"
#include "devices/array/tgt/testing/slow_writes.h"
#include "devices/array/tgt/tgt_client.h"

namespace lunkeeper::testing {
namespace {

const NodeId kCutOff("node-a.1"), kNext("node-b.1");

// A volume of which tgtd lists a session for good, although none of its commands is left.
struct LostReset : ArrayFixture {
  LostReset() {
    REQUIRE(Open() == absl::OkStatus());
    cluster = Cluster();
    volume = cluster->volumes().CreateVolume(Spec("v", 16)).value().id;
    connection = Acquire(kCutOff, absl::ZeroDuration()).value().connection;
    slow.Set(2000);
    Cut([](RawSession& session) { session.SendWrite(); });
    slow.Set(0);
    Cut([](RawSession& session) { session.SendReset(); });
    RawSession session(connection);
    session.SendReset();
    REQUIRE(session.IsAnswered(absl::Seconds(20)));
  }
  template <class Send>
  void Cut(Send send) {
    RawSession session(connection);
    send(session);
    REQUIRE_FALSE(session.IsAnswered(RawSession::kArrives));
  }
  absl::StatusOr<Grant> Acquire(const NodeId& node, absl::Duration wait) {
    return cluster->grants().AcquireGrant(
        {.volume = volume, .node = node, .access = Access::kExclusive, .owner = GrantOwner::kNode}, wait);
  }

  SlowWrites slow{*this};
  std::unique_ptr<Array> cluster;
  VolumeId volume;
  Connection connection;
};

TEST_CASE_METHOD(LostReset,
                 "a volume with a session that tgtd never ends is fenced, and another node has it") {
  const auto term = cluster->fences().BeginTerm("leader");
  REQUIRE(cluster->fences().FenceNode(*term, {kCutOff, {volume}}).status() == absl::OkStatus());
  CHECK_FALSE(PlainInitiator::Login(connection).ok());
  const auto next = Acquire(kNext, absl::Seconds(20));
  REQUIRE(next.status() == absl::OkStatus());
  CHECK(PlainInitiator::Login(next->connection).value()->Write(1, 'x'));
  SECTION("its empty target is no reason for the agent's next start to end anybody's session") {
    const pid_t before = TgtdProcess(options.control_port);
    auto session = PlainInitiator::Login(next->connection);
    REQUIRE(session.ok());
    REQUIRE(Open() == absl::OkStatus());
    CHECK(TgtdProcess(options.control_port) == before);
    CHECK(session.value()->Write(2, 'y'));
    CHECK(TgtClient(options.control_port).ListTargets()->size() ==
          3);  // the one of nobody, and the empty one
  }
}

TEST_CASE_METHOD(LostReset, "a volume with a session that tgtd never ends is released") {
  REQUIRE(cluster->grants().ReleaseGrant(volume, kCutOff, GrantOwner::kNode, kAnyGeneration) ==
          absl::OkStatus());
  CHECK(cluster->volumes().DeleteVolume(volume) == absl::OkStatus());
}

TEST_CASE_METHOD(LostReset, "a volume with a session that tgtd never ends grows, and is fenced later") {
  REQUIRE(cluster->volumes().ExpandVolume(volume, 32 << 20).status() == absl::OkStatus());
  CHECK(PlainInitiator::Login(connection).value()->SizeBytes() == 32 << 20);
  const auto term = cluster->fences().BeginTerm("leader");
  CHECK(cluster->fences().FenceNode(*term, {kCutOff, {volume}}).status() == absl::OkStatus());
}

// Its command is what counts, not how long its session is listed.
TEST_CASE_METHOD(LostReset, "a write in hand is waited for, also beside a session that tgtd never ends") {
  slow.Set(4000);
  Cut([](RawSession& session) { session.SendWrite(); });
  slow.Set(0);
  const auto term = cluster->fences().BeginTerm("leader");
  const absl::Time begin = absl::Now();
  CHECK(cluster->fences().FenceNode(*term, {kCutOff, {volume}}).status() == absl::OkStatus());
  CHECK(absl::Now() - begin > absl::Milliseconds(2500));
}

// Its kernel answers for ever: it is frozen, or means it.
TEST_CASE_METHOD(ClusterFixture,
                 "a node that takes no answers is fenced and released while its socket is there") {
  const VolumeId volume = Make("v");
  const Connection connection = Acquire(volume, kCutOff).value().connection;
  RawSession session(connection);
  SECTION("to reads, which are over at the disk alone") { session.SendUnreadReads(); }
  SECTION("to pings") { session.SendUnreadPings(); }
  const pid_t before = TgtdProcess(options.control_port);
  if (GENERATE(false, true)) {
    REQUIRE(Release(volume, kCutOff) == absl::OkStatus());
  } else {
    const auto term = array->fences().BeginTerm("leader");
    REQUIRE(array->fences().FenceNode(*term, {kCutOff, {volume}}).status() == absl::OkStatus());
  }
  CHECK_FALSE(PlainInitiator::Login(connection).ok());
  CHECK(Eventually([&] { return TgtClient(options.control_port).ListTargets()->size() == 1; }));  // nobody's
  array.reset();
  REQUIRE(Open() == absl::OkStatus());
  CHECK(TgtdProcess(options.control_port) == before);
}

// tgtd tells of a session only the address, which the node's other connections share.
TEST_CASE_METHOD(LostReset, "a session that tgtd never ends costs its node no slow connection for long") {
  REQUIRE(cluster->grants().ReleaseGrant(volume, kCutOff, GrantOwner::kNode, kAnyGeneration) ==
          absl::OkStatus());
  volume = cluster->volumes().CreateVolume(Spec("other", 16)).value().id;
  RawSession slow_reader(Acquire(kCutOff, absl::ZeroDuration()).value().connection);
  absl::SleepFor(absl::FromChrono(EmptyTargets::kEndsStuckFor + std::chrono::seconds(1)));
  REQUIRE(TgtClient(options.control_port).ListTargets()->size() == 3);  // the empty one is there
  slow_reader.SendUnreadReads();
  absl::SleepFor(absl::Seconds(5));  // and it takes nothing meanwhile
  CHECK(slow_reader.ReadsFor(absl::Seconds(1)));
}

struct LeftTarget {
  std::string what, array;
  int further;  // than the generation of a grant that is gone
  bool adopted;
};

TEST_CASE_METHOD(ClusterFixture, "an agent that starts adopts an empty target only where its grant is gone") {
  const auto left = GENERATE(LeftTarget{"gone", "a1", 0, true}, LeftTarget{"to come", "a1", 1, false},
                             LeftTarget{"of another array", "a2", 0, false});
  INFO(left.what);
  const VolumeId volume = Make("v");
  const Generation gone = Acquire(volume, kCutOff).value().generation;
  REQUIRE(Release(volume, kCutOff) == absl::OkStatus());
  const auto number = static_cast<int32_t>(gone) + left.further;
  const TgtClient tgt(options.control_port);
  REQUIRE(tgt.NewTarget(number, Iqn(absl::StrCat("iqn.2026-11.io.lunkeeper:", left.array, ":", volume.value(),
                                                 ":", number))) == absl::OkStatus());
  const pid_t before = TgtdProcess(options.control_port);
  array.reset();
  REQUIRE(Open() == absl::OkStatus());
  CHECK((TgtdProcess(options.control_port) == before) == left.adopted);
  CHECK(Eventually([&] { return tgt.ListTargets()->size() == 1; }));  // the one of nobody
}

// tgtd tells of a session only the address, which all volumes of a node share.
TEST_CASE_METHOD(LostReset, "a node goes on reading one volume while another's slow write is waited for") {
  const VolumeId read = cluster->volumes().CreateVolume(Spec("read", 16)).value().id;
  RawSession reader(
      cluster->grants()
          .AcquireGrant(
              {.volume = read, .node = kCutOff, .access = Access::kExclusive, .owner = GrantOwner::kNode},
              absl::ZeroDuration())
          .value()
          .connection);
  slow.Set(9000);
  Cut([](RawSession& session) { session.SendWrite(); });
  slow.Set(0);
  absl::Status released = absl::UnknownError("under way");
  const absl::Time begin = absl::Now();
  std::jthread release(
      [&] { released = cluster->grants().ReleaseGrant(volume, kCutOff, GrantOwner::kNode, kAnyGeneration); });
  CHECK(reader.ReadsFor(absl::Seconds(10)));
  release.join();
  CHECK(released == absl::OkStatus());
  CHECK(absl::Now() - begin > absl::Seconds(7));
}

}  // namespace
}  // namespace lunkeeper::testing
