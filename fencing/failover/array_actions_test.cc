#include "fencing/failover/array_actions.h"

#include <catch2/catch.hpp>

#include "base/testing/test_host.h"
#include "devices/array/testing/fake_array.h"
#include "fencing/failover/limits_board.h"

namespace lunkeeper::fencing {
namespace {

// As an array agent that lacks the calls which only add evidence.
class OlderArray final : public Array, public GrantStore {
 public:
  explicit OlderArray(FakeArray& real) : real_(real) {}

  VolumeStore& volumes() override { return real_.volumes(); }
  SnapshotGroups& groups() override { return real_.groups(); }
  SnapshotBlocks& blocks() override { return real_.blocks(); }
  NameIndex& names() override { return real_.names(); }
  GrantStore& grants() override { return *this; }
  FenceControl& fences() override { return real_.fences(); }

  absl::StatusOr<Grant> AcquireGrant(const GrantRequest& request, absl::Duration wait) override {
    return real_.AcquireGrant(request, wait);
  }
  absl::Status ReleaseGrant(const VolumeId& volume, const NodeId& node, GrantOwner owner,
                            Generation generation) override {
    return real_.ReleaseGrant(volume, node, owner, generation);
  }
  absl::StatusOr<std::vector<Grant>> ListGrants(const GrantFilter& filter) override {
    return lists_grants ? real_.ListGrants(filter) : absl::UnimplementedError("no such call");
  }
  absl::StatusOr<std::vector<GrantSession>> ListSessions() override {
    if (sessions.empty()) return absl::UnimplementedError("no such call");
    return sessions;
  }
  absl::StatusOr<std::vector<VolumeId>> ListWantedVolumes() override {
    return absl::UnimplementedError("no such call");
  }

  bool lists_grants = true;
  std::vector<GrantSession> sessions;

 private:
  FakeArray& real_;
};

const NodeId kNode("worker-1.0123456789abcdef");

}  // namespace

TEST_CASE("a poll tells the limits of each grant, of volumes that have had any") {
  FakeArray array;
  VolumeSpec spec;
  spec.name = "plain";
  const VolumeId plain = array.CreateVolume(spec)->id;
  REQUIRE(array.AcquireGrant({.volume = plain, .node = kNode}, absl::ZeroDuration()).ok());
  spec.name = "limited";
  spec.limits.iops = 200;
  const VolumeId limited = array.CreateVolume(spec)->id;
  REQUIRE(array.AcquireGrant({.volume = limited, .node = kNode}, absl::ZeroDuration()).ok());
  LimitsBoard board;
  board.OnLimits(ArrayId("a1"), PollArray(ArrayId("a1"), array)->limits);
  CHECK(board.LimitsOf(kNode) ==
        LimitsByVolume{{limited, {.iops = 200, .bytes_per_second = 0, .version = 1}}});
  CHECK(board.LimitsOf(NodeId("other.0123456789abcdef")).empty());
  REQUIRE(array.ModifyVolume(limited, {.max_iops = 0}).ok());
  board.OnLimits(ArrayId("a1"), PollArray(ArrayId("a1"), array)->limits);
  CHECK(board.LimitsOf(kNode).at(limited).version == 2);
  REQUIRE(array.ReleaseGrant(limited, kNode, GrantOwner::kNode, kAnyGeneration).ok());
  board.OnLimits(ArrayId("a1"), PollArray(ArrayId("a1"), array)->limits);
  CHECK(board.LimitsOf(kNode).empty());
}

TEST_CASE("an array that lacks a call which only adds evidence is polled all the same") {
  FakeArray real;
  OlderArray array(real);
  VolumeSpec spec;
  spec.name = "v";
  spec.size_bytes = 1 << 20;
  const VolumeId volume = real.CreateVolume(spec)->id;
  REQUIRE(real.AcquireGrant({.volume = volume, .node = kNode}, absl::ZeroDuration()).ok());
  const auto poll = PollArray(ArrayId("a1"), array);
  REQUIRE(poll.status() == absl::OkStatus());
  REQUIRE(poll->view.holdings.size() == 1);
  CHECK(poll->view.holdings.front().volume == volume);
  CHECK(poll->wanted.empty());
  // Without the grants nobody knows what a fence has to take.
  array.lists_grants = false;
  CHECK(absl::IsUnimplemented(PollArray(ArrayId("a1"), array).status()));
}

TEST_CASE("a poll tells which grants' commands nobody could count, and why") {
  FakeArray array;
  VolumeSpec spec;
  std::vector<VolumeId> volumes;
  for (const char* name : {"seen", "hidden"}) {
    spec.name = name;
    volumes.push_back(array.CreateVolume(spec)->id);
    REQUIRE(array.AcquireGrant({.volume = volumes.back(), .node = kNode}, absl::ZeroDuration()).ok());
  }
  CHECK(PollArray(ArrayId("a1"), array)->view.unseen.empty());
  array.HideSessions(volumes[1], true);
  const auto poll = PollArray(ArrayId("a1"), array);
  REQUIRE(poll.status() == absl::OkStatus());
  CHECK(poll->view.unseen == "its tgtd 1 does not answer");
  REQUIRE(poll->view.holdings.size() == 2);
  for (const Holding& holding : poll->view.holdings) CHECK(holding.counted == (holding.volume == volumes[0]));
}

TEST_CASE("of a volume that two nodes share each has its own commands") {
  const NodeId other("worker-2.0123456789abcdef");
  FakeArray real;
  OlderArray array(real);
  VolumeSpec spec;
  spec.name = "shared";
  const VolumeId volume = real.CreateVolume(spec)->id;
  for (const NodeId& node : {kNode, other})
    REQUIRE(real.AcquireGrant({.volume = volume, .node = node, .access = Access::kSharedWrite},
                              absl::ZeroDuration())
                .ok());
  array.sessions = {{volume, kNode, 3, 4, 0, 0}, {volume, kNode, 10, 0, 0, 0}, {volume, other, 100, 0, 0, 0}};
  const auto poll = PollArray(ArrayId("a1"), array);
  REQUIRE(poll.status() == absl::OkStatus());
  REQUIRE(poll->view.holdings.size() == 2);
  for (const Holding& holding : poll->view.holdings)
    CHECK(holding.commands == (holding.node == kNode ? 17u : 100u));
}

TEST_CASE("a heartbeat that landed a while ago is as old in a poll") {
  FakeArray array;
  array.LandHeartbeat(kNode);
  CHECK(testing::Eventually([&] {
    const auto poll = PollArray(ArrayId("a1"), array);
    return poll.ok() && poll->view.landed.size() == 1 && poll->view.landed.front().age >= 20_ms;
  }));
}

TEST_CASE("an array that knows a newer term refuses, which is told from a failure") {
  FakeArray real;
  const Term term = *real.BeginTerm("controller-1");
  REQUIRE(real.BeginTerm("controller-2").ok());
  CHECK(FenceNodeOn({ArrayId("a1"), term, kNode, {}}, real, "controller-1").done.outcome ==
        Outcome::kRefused);
  CHECK(UnfenceNodeOn({ArrayId("a1"), term, kNode, 1}, real).done.outcome == Outcome::kRefused);
  real.FailWith(absl::UnavailableError("no way to it from here"));
  CHECK(FenceNodeOn({ArrayId("a1"), term + 1, kNode, {}}, real, "c-2").done.outcome == Outcome::kFailed);
}

TEST_CASE("a poll tells whose a fence is: a person's, or a leader's") {
  FakeArray real;
  const Term term = *real.BeginTerm("controller-1");
  for (const bool manual : {false, true}) {
    REQUIRE(real.FenceNode(term, {.node = kNode, .fenced_by = manual ? "operator@desk" : "c-1"}).ok());
    CHECK(PollArray(ArrayId("a1"), real)->view.fences.front().manual == manual);
  }
}

TEST_CASE("a leader's fence says who it is") {
  FakeArray real;
  const Term term = *real.BeginTerm("controller-1");
  CHECK(FenceNodeOn({ArrayId("a1"), term, kNode, {}}, real, "controller-1").done.outcome == Outcome::kOk);
  const FenceRecord fence = real.ListFences()->front();
  CHECK(fence.fenced_by == "controller-1");
  CHECK(fence.reason == "failover: see the node's NodeFence");
}

}  // namespace lunkeeper::fencing
