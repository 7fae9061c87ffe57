// Controllers that ask each other whether they hear a node: real TLS on loopback, and what may go wrong.

#include "fencing/failover/replica_poll.h"

#include <future>
#include <set>

#include "base/testing/stalling_proxy.h"
#include "plugin/other_replicas.h"
#include "plugin/testing/coordinator_rig.h"
#include "plugin/testing/heartbeating_node.h"

namespace lunkeeper {
namespace {

using fencing::ReplicaPoll;
using fencing::ReplicaVotes;

constexpr char kControllers[] = "system:serviceaccount:lunkeeper:controller";
constexpr uint16_t kPort = 7443;
constexpr char kNode[] = "node-1.0123456789abcdef";

struct PollRig : CoordinatorRig {
  PollRig() {
    reviewer.Add("token-c", {kControllers, "node-9", absl::InfiniteFuture()});
    WriteToken("token-c");
  }
  Controller& AddReplica(const std::string& name, const std::set<std::string>& hears) {
    Controller& replica =
        AddController(ManyNodes(), {.most_volumes = 0, .node = {}, .controllers = &controls});
    replica.sink.SetVote(name, hears);
    return replica;
  }
  ReplicaOptions To(const std::vector<uint16_t>& ports) {
    ReplicaOptions options;
    for (const uint16_t port : ports) options.addresses.push_back(absl::StrCat("127.0.0.1:", port));
    const auto tls = TlsClient(authority.certificate());
    REQUIRE(tls.ok());
    options.credentials = *tls;
    options.token_file = folder / "token";
    return options;
  }
  Authenticator controls{reviewer, {kTestAudience, kControllers}};
};

ReplicaVotes Ask(ReplicaPoll& poll, const std::string& node = kNode) {
  std::promise<ReplicaVotes> votes;
  poll.AskAll(NodeId(node), [&](const ReplicaVotes& answer) { votes.set_value(answer); });
  return votes.get_future().get();
}

// A loaded machine may answer late, which is no vote: it is asked until it has one.
ReplicaVotes AskUntil(ReplicaPoll& poll, const std::function<bool(const ReplicaVotes&)>& enough) {
  ReplicaVotes votes;
  CHECK(testing::Eventually([&] {
    votes = Ask(poll);
    return enough(votes);
  }));
  return votes;
}

}  // namespace

TEST_CASE("another controller that hears the node says so by its name, and this one is not asked") {
  PollRig rig;
  const uint16_t self = rig.AddReplica("self", {kNode}).port;
  Controller& other = rig.AddReplica("other", {kNode});
  ReplicaPoll poll(AskOverGrpc(rig.To({self, other.port}), kPort), "self");
  const auto all = [](const ReplicaVotes& votes) { return votes.answered == 1; };
  CHECK(AskUntil(poll, all).heard_by == "other");
  other.sink.SetVote("other", {"node-2.0123456789abcdef"});
  CHECK(AskUntil(poll, all).heard_by.empty());
}

TEST_CASE("another controller that saw a node's plugin end says so while the kernel answers it") {
  PollRig rig;
  const uint16_t self = rig.AddReplica("self", {}).port;
  Controller& other = rig.AddReplica("other", {});
  rig.controllers.front()->sink.SetEnded({kNode});
  ReplicaPoll poll(AskOverGrpc(rig.To({self, other.port}), kPort), "self");
  const auto all = [](const ReplicaVotes& votes) { return votes.answered == 1; };
  CHECK(AskUntil(poll, all).kernel_answers_to.empty());
  other.sink.SetEnded({kNode});
  const auto votes = AskUntil(poll, all);
  CHECK(votes.kernel_answers_to == "other");
  CHECK(votes.heard_by.empty());
}

TEST_CASE("who is gone, hangs, is too old or does not trust the caller has no vote") {
  PollRig rig;
  Controller& good = rig.AddReplica("other", {kNode});
  const auto no_vote = [](const auto& votes) { return votes.answered == 0 && votes.silent == 1; };
  SECTION("gone") {
    const uint16_t gone = rig.AddReplica("gone", {kNode}).port;
    rig.controllers.back()->Kill();
    ReplicaPoll poll(AskOverGrpc(rig.To({good.port, gone}), kPort), "self");
    CHECK(AskUntil(poll, [](const auto& votes) { return votes.answered == 1; }).silent == 1);
  }
  SECTION("it hangs: it is not waited for") {
    Controller& hung = rig.AddReplica("hung", {kNode});
    StallingProxy proxy(hung.port);
    ReplicaPoll poll(AskOverGrpc(rig.To({good.port, proxy.port()}), kPort), "self");
    AskUntil(poll, [](const auto& votes) { return votes.answered == 2; });
    proxy.Stall(true);
    CHECK(AskUntil(poll, [](const auto& votes) { return votes.answered == 1; }).silent == 1);
  }
  SECTION("an older one does not know the question") {
    const uint16_t older = rig.AddController().port;
    ReplicaPoll poll(AskOverGrpc(rig.To({good.port, older}), kPort), "self");
    CHECK(AskUntil(poll, [](const auto& votes) { return votes.answered == 1; }).silent == 1);
  }
  SECTION("one without failover keeps no count of heartbeats") {
    good.sink.KeepNoCount();
    ReplicaPoll poll(AskOverGrpc(rig.To({good.port}), kPort), "self");
    CHECK(AskUntil(poll, no_vote).heard_by.empty());
  }
  SECTION("a node's token opens nothing") {
    rig.WriteToken("token-1");
    ReplicaPoll poll(AskOverGrpc(rig.To({good.port}), kPort), "self");
    CHECK(AskUntil(poll, no_vote).heard_by.empty());
  }
  SECTION("no token") {
    rig.WriteToken("");
    ReplicaPoll poll(AskOverGrpc(rig.To({good.port}), kPort), "self");
    CHECK(AskUntil(poll, no_vote).heard_by.empty());
  }
  SECTION("a controller with another authority's certificate is believed nothing") {
    TestAuthority foreign(rig.folder, "foreign");
    foreign.Issue(rig.folder / "coordinator", "IP:127.0.0.1");
    const uint16_t impostor = rig.AddReplica("impostor", {kNode}).port;
    ReplicaPoll poll(AskOverGrpc(rig.To({impostor}), kPort), "self");
    CHECK(AskUntil(poll, no_vote).heard_by.empty());
  }
}

TEST_CASE("the time of a vote is not waited for where a controller has answered nothing for a while") {
  PollRig rig;
  Controller& good = rig.AddReplica("other", {kNode});
  Controller& hung = rig.AddReplica("hung", {kNode});
  ReplicaPoll poll(AskOverGrpc(rig.To({good.port, hung.port}), kPort), "self");
  AskUntil(poll, [](const auto& votes) { return votes.answered == 2; });
  hung.sink.SetVotes(false);
  CHECK(testing::Eventually([&] {
    const auto asked = std::chrono::steady_clock::now();
    const auto votes = Ask(poll);
    const bool early = std::chrono::steady_clock::now() - asked < std::chrono::milliseconds(200);
    return early && votes.answered == 1 && votes.silent == 1;
  }));
  hung.sink.SetVotes(true);
  CHECK(AskUntil(poll, [](const auto& votes) { return votes.answered == 2; }).silent == 0);
}

TEST_CASE("other controllers say what they see, but for one that could not lead") {
  PollRig rig;
  const uint16_t self = rig.AddReplica("self", {}).port;
  Controller& other = rig.AddReplica("other", {});
  Controller& blind = rig.AddReplica("blind", {});
  const fencing::ReplicaSight sight{
      .replica = "other", .age = fencing::Span::OfMilliseconds(12'345), .arrays = 2, .nodes = 7};
  rig.controllers.front()->sink.SetSight(sight);
  other.sink.SetSight(sight);
  ReplicaPoll poll(AskOverGrpc(rig.To({self, other.port, blind.port}), kPort), "self");
  ReplicaVotes votes;
  REQUIRE(testing::Eventually([&] {
    votes = Ask(poll, "");
    return votes.answered == 2;
  }));
  CHECK(votes.sights == std::vector{sight});
}

TEST_CASE("a node learns of a new controller from the answers of one that it asks") {
  PollRig rig;
  Controller& known = rig.AddReplica("known", {});
  auto to_known = rig.To({known.port});
  rig.WriteToken("token-c", "controller");
  to_known.token_file = rig.folder / "controller";
  rig.WriteToken("token-1");
  HeartbeatingNode node(rig, {known.port});
  REQUIRE(testing::Eventually([&] { return known.sink.heartbeats() > 0; }));
  Controller& fresh = rig.AddReplica("fresh", {});
  ReplicaPoll poll(AskOverGrpc(std::move(to_known), fresh.port), "fresh");
  CHECK(testing::Eventually([&] { return fresh.sink.heartbeats() > 0; }));
  CHECK(fresh.sink.last().node == rig.node);
}

TEST_CASE("a stranger's word leads no node anywhere") {
  PollRig rig;
  rig.WriteToken("token-1");  // a node's
  Controller& known = rig.AddReplica("known", {});
  HeartbeatingNode node(rig, {known.port});
  Controller& stranger = rig.AddReplica("stranger", {});
  ReplicaPoll poll(AskOverGrpc(rig.To({known.port}), stranger.port), "stranger");
  AskUntil(poll, [](const ReplicaVotes& votes) { return votes.silent == 1; });
  const int before = known.sink.heartbeats();
  REQUIRE(testing::Eventually([&] { return known.sink.heartbeats() >= before + 6; }));
  CHECK(stranger.sink.heartbeats() == 0);
}

TEST_CASE("a controller that knows of no other goes on at once") {
  PollRig rig;
  ReplicaPoll poll(AskOverGrpc(rig.To({}), kPort), "self");
  CHECK(Ask(poll) == ReplicaVotes());
}

}  // namespace lunkeeper
