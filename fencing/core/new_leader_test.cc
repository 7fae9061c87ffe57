// What a leader does that started after everything had happened.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "fencing/core/core.h"

namespace lunkeeper::fencing {
namespace {

const NodeId kOld("n1.0000000000000001"), kNew("n1.0000000000000002");
const ArrayId kArray("a1");

// A core whose calls all succeed, at once.
struct Leader {
  void Step(decltype(Event::what) what) {
    for (const Action& action : core.Step({now, std::move(what)})) {
      actions.push_back(action);
      if (action.id != 0) Answer(action);
    }
  }
  void Answer(const Action& action) {
    Done done;
    if (std::holds_alternative<WriteLease>(action.what)) now += takes;
    done.action = action.id;
    done.version = Version(std::to_string(action.id));
    done.votes = votes;
    if (const auto* put = std::get_if<PutNodeFence>(&action.what); put && before_answer)
      done.version = before_answer(put->fence);
    if (std::holds_alternative<RemoveNodeFence>(action.what) && !removes) return;
    if (std::holds_alternative<PutNodeFence>(action.what) && !writes) return;
    if (std::holds_alternative<BeginTerm>(action.what)) done.term = 1;
    if (std::holds_alternative<BeginTerm>(action.what) && !begins_terms) done.outcome = Outcome::kFailed;
    if (const auto* fence = std::get_if<FenceNode>(&action.what))
      done.fence = ArrayFence{fence->node, 9, fence->volumes};
    Step(done);
  }
  // Time in which nothing changes but what the array says again and again.
  void Pass(Span time) {
    for (const Instant end = now + time; now < end; now += 250_ms) {
      Step(ArrayView{kArray, now, {}, {}});
      Step(ApiAlive{});
      Step(Tick{});
    }
  }
  void Begin(const NodeFence& record) {
    Node node;
    node.name = NameOf(kOld);
    node.node_id = kNew;
    Step(NodeSeen{node});
    Step(FenceSeen{record});
    Step(ApiSynced{});
    Step(ArrayView{kArray, now, {}, {}});
    Step(LeaseSeen{"", Version("1"), now});
    now += 250_ms;
    Step(Tick{});
  }
  template <typename T>
  std::vector<T> All() const {
    std::vector<T> all;
    for (const Action& action : actions)
      if (const auto* found = std::get_if<T>(&action.what)) all.push_back(*found);
    return all;
  }

  std::vector<uint64_t> Writes() const {  // of NodeFences, by their actions' ids
    std::vector<uint64_t> ids;
    for (const Action& action : actions)
      if (std::holds_alternative<PutNodeFence>(action.what)) ids.push_back(action.id);
    return ids;
  }

  // Of what it says of its leadership.
  std::string LastReport() const {
    std::string text;
    for (const Report& report : All<Report>())
      if (report.kind == ReportKind::kLeadership) text = report.text;
    return text;
  }

  bool begins_terms = true, removes = true, writes = true;
  Instant now{100_s};
  Core core{Settings(), "me"};
  std::vector<Action> actions;
  ReplicaVotes votes;
  Span takes;  // a write of the lease, until it is answered
  // What happens while a NodeFence is written; says its version then.
  std::function<Version(const NodeFence&)> before_answer;
};

// Lets time pass in which nothing changes but what the array and the API server say again and again.
bool Yields(Leader& leader, Span within) {
  const Instant end = leader.now + within;
  const auto is_release = [](const WriteLease& write) { return write.release; };
  while (leader.now < end) {
    leader.now += 250_ms;
    leader.Step(ArrayView{kArray, leader.now, {}, {}});
    leader.Step(Tick{});
    const auto writes = leader.All<WriteLease>();
    if (std::any_of(writes.begin(), writes.end(), is_release)) return true;
  }
  return false;
}

NodeFence Record() {
  NodeFence record;
  record.node = kOld;
  record.uid = Uid("u");
  record.version = Version("5");
  return record;
}

}  // namespace

TEST_CASE("an instance that is gone is fenced again where the array has forgotten it, whoever leads") {
  NodeFence record = Record();
  record.volumes[kArray] = {VolumeId("v1")};
  record.generations[kArray] = 3;
  Leader leader;
  leader.Begin(record);
  const auto fences = leader.All<FenceNode>();
  REQUIRE(fences.size() == 1);
  CHECK(fences[0].node == kOld);
  CHECK(fences[0].volumes == record.volumes[kArray]);
  CHECK(leader.All<RemoveNodeFence>().size() == 1);
}

TEST_CASE("a look from before its term does not show a new leader that a fence is gone") {
  NodeFence record = Record();
  record.node = kNew;
  record.volumes[kArray] = {VolumeId("v1")};
  record.generations[kArray] = 3;
  Leader leader;
  leader.Step(Heartbeat{kNew, "boot", 1, true, {}, {}, {}, {{kArray, 3}}});
  leader.Begin(record);
  REQUIRE(leader.core.Leads());
  CHECK(leader.All<RemoveNodeFence>().empty());
  ArrayView view{kArray, leader.now, {}, {}};
  SECTION("the leader before made it since then") {
    view.fences.push_back({kNew, 3, record.volumes[kArray]});
    leader.Step(view);
    leader.Step(Tick{});
    CHECK(leader.All<UnfenceNode>().size() == 1);
  }
  SECTION("it is gone") {
    leader.Step(view);
    leader.Step(Tick{});
    CHECK(leader.All<RemoveNodeFence>().size() == 1);
    CHECK(leader.All<UnfenceNode>().empty());
  }
}

// The watch of the Nodes has brought the taint, and the one of the NodeFences brings the record later.
TEST_CASE("a look from before its term does not show a new leader that a taint is left over") {
  Leader leader;
  Node node;
  node.name = NameOf(kNew), node.node_id = kNew, node.taint = kNew.value();
  leader.Step(NodeSeen{node});
  leader.Step(Heartbeat{kNew, "boot", 1, true, {}, {}, {}, {{kArray, 3}}});
  leader.Step(ApiSynced{});
  leader.Step(ArrayView{kArray, leader.now, {}, {}});
  leader.Step(LeaseSeen{"", Version("1"), leader.now});
  leader.now += 250_ms;
  leader.Step(Tick{});
  REQUIRE(leader.core.Leads());
  CHECK(leader.All<SetTaint>().empty());
  ArrayView view{kArray, leader.now, {}, {}};
  SECTION("the leader before fenced the node since then") {
    view.fences.push_back({kNew, 3, {VolumeId("v1")}});
    leader.Step(view);
    leader.Step(Tick{});
    CHECK(leader.All<SetTaint>().empty());
  }
  SECTION("no array has a fence") {
    leader.Step(view);
    leader.Step(Tick{});
    CHECK(leader.All<SetTaint>().size() == 1);
  }
}

// Its own NodeFence has no uid until a watch tells. It is written again meanwhile, which changes nothing.
TEST_CASE("what a watch tells while a record is written is not forgotten") {
  NodeFence record = Record();
  record.uid = {};
  Leader leader;
  leader.removes = false;
  leader.before_answer = [&](NodeFence written) {
    written.uid = Uid("u");
    leader.Step(FenceSeen{written});
    return written.version;
  };
  leader.Begin(record);
  REQUIRE(leader.All<PutNodeFence>().size() == 1);
  CHECK(leader.core.state().cluster.FindFence(kOld)->uid == Uid("u"));
}

TEST_CASE("that an old NodeFence is removed says nothing of a new one of its name") {
  Leader leader;
  leader.removes = false;
  leader.Begin(Record());
  const auto removal = std::ranges::find_if(leader.actions, [](const Action& action) {
    return std::holds_alternative<RemoveNodeFence>(action.what);
  });
  REQUIRE(removal != leader.actions.end());
  Done removed;
  removed.action = removal->id;
  leader.Step(FenceGone{kOld});
  NodeFence fresh = Record();
  fresh.uid = Uid("of another one");
  fresh.requested_by = "somebody";
  leader.Step(FenceSeen{fresh});
  leader.Step(removed);
  REQUIRE(leader.core.state().cluster.FindFence(kOld));
  CHECK(leader.core.state().cluster.FindFence(kOld)->uid == fresh.uid);
}

TEST_CASE("a record of which no watch tells is written now and then, and not as fast as it is answered") {
  NodeFence record = Record();
  record.uid = {};
  Leader leader;
  leader.writes = false;
  leader.Begin(record);
  size_t answered = 0;
  for (const Instant end = leader.now + 10_s; leader.now < end;) {
    for (const Instant next = leader.now + 250_ms; leader.now < next; leader.now += 10_ms)
      for (const auto writes = leader.Writes(); answered < writes.size(); ++answered) {
        Done done;
        done.action = writes[answered];
        done.version = record.version;
        leader.Step(done);
      }
    leader.Step(ArrayView{kArray, leader.now, {}, {}});
    leader.Step(ApiAlive{});
    leader.Step(Tick{});
  }
  CHECK(answered >= 5);  // it goes on
  CHECK(answered <= 12);
  record.uid = Uid("u");
  leader.Step(FenceSeen{record});
  CHECK(leader.All<RemoveNodeFence>().size() == 1);
}

TEST_CASE("a new leader acts in the tick in which it takes the lease, and refuses what names nobody") {
  NodeFence record = Record();
  record.requested_by = "somebody";
  Leader leader;
  leader.Begin(record);
  CHECK(leader.core.Leads());
  CHECK(leader.All<BeginTerm>().size() == 1);  // at the tick at which it took the lease
  CHECK(leader.All<FenceNode>().empty());      // there is no trace of that node
  const auto records = leader.All<PutNodeFence>();
  REQUIRE(records.size() == 1);
  CHECK(records[0].fence.phase == Phase::kRefused);
}

TEST_CASE("a leader to which an array gives no term says that it moves nothing there") {
  Leader leader;
  leader.begins_terms = false;
  leader.Begin(Record());
  leader.Pass(5_s);
  CHECK(leader.core.state().TermlessArrays().empty());  // it may just be slow
  leader.Pass(10_s);
  CHECK(leader.core.state().TermlessArrays() == std::vector{kArray});
  CHECK(leader.LastReport() == "the leader gets no term on a1: nothing on it is moved");
  leader.begins_terms = true;
  leader.Pass(2_s);
  CHECK(leader.core.state().TermlessArrays().empty());
}

// It can write its lease and sees as much as the other one, so nothing else tells them apart.
TEST_CASE("a leader that cannot act lets one lead that can") {
  Leader leader;
  leader.votes = {.answered = 1, .sights = {{.replica = "them", .age = 600_s, .arrays = 1}}};
  leader.Step(ArrayView{kArray, leader.now, {}, {}});
  leader.Step(LeaseSeen{"", Version("1"), leader.now});
  SECTION("what it watches was never listed") {}
  SECTION("the API server brings it no changes") {
    leader.Step(ApiSynced{});
    leader.Step(Tick{});
    leader.Step(ApiLost{});
  }
  CHECK(Yields(leader, 10_s));
}

TEST_CASE("a leader that cannot act leads on where no other one could") {
  Leader leader;
  leader.Step(ArrayView{kArray, leader.now, {}, {}});
  leader.Step(LeaseSeen{"", Version("1"), leader.now});
  CHECK_FALSE(Yields(leader, 30_s));
  CHECK(leader.core.Leads());
}

// Of two replicas that want a free lease, one that cannot act would keep it from the other for seconds.
TEST_CASE("a replica that cannot act takes the lease only if nobody else does") {
  Leader leader;
  leader.Step(ArrayView{kArray, leader.now, {}, {}});
  leader.Step(LeaseSeen{"", Version("1"), leader.now});
  leader.Step(Tick{});
  CHECK(leader.All<WriteLease>().empty());
  SECTION("until it can") {
    leader.Step(ApiSynced{});
    leader.Step(Tick{});
    CHECK(leader.core.Leads());
  }
  SECTION("nobody does") {
    CHECK_FALSE(Yields(leader, 10_s));
    CHECK(leader.core.Leads());
  }
}

TEST_CASE("a leader that cannot act does not stay for a failover that is under way") {
  Leader leader;
  leader.votes = {.answered = 1, .sights = {{.replica = "them", .age = 600_s, .arrays = 1}}};
  leader.Step(FenceSeen{Record()});
  leader.Step(ArrayView{kArray, leader.now, {}, {}});
  leader.Step(LeaseSeen{"", Version("1"), leader.now});
  CHECK(Yields(leader, 15_s));
}

// The array refuses the old term, and the failover would wait for the next renewal.
TEST_CASE("a term that was got right before the lease was lost is begun anew with the next one") {
  Leader leader;
  leader.Step(ApiSynced{});
  leader.Step(ArrayView{kArray, leader.now, {}, {}});
  leader.Step(LeaseSeen{"", Version("1"), leader.now});
  leader.takes = 2_s + 900_ms;  // the answer, of the three seconds for which it counts
  leader.Step(Tick{});
  REQUIRE(leader.All<BeginTerm>().size() == 1);
  leader.now += 250_ms;
  leader.takes = {};
  leader.Step(LeaseSeen{"them", Version("w1"), leader.now});
  leader.Step(Tick{});
  CHECK_FALSE(leader.core.Leads());
  leader.Step(LeaseSeen{"", Version("w2"), leader.now});
  leader.Pass(1_s);
  REQUIRE(leader.core.Leads());
  CHECK(leader.All<BeginTerm>().size() == 2);
}

// After a stall it takes all that it heard before for arriving, until it has listened for a while.
TEST_CASE("a replica that has just stalled is as young as one that has just started") {
  Leader leader;
  leader.Step(ApiSynced{});
  leader.Pass(60_s);
  REQUIRE(leader.core.Sight());
  CHECK(leader.core.Sight()->age >= 59_s);
  leader.now += 5_s;
  leader.Pass(1_s);
  REQUIRE(leader.core.Sight());
  CHECK(leader.core.Sight()->age <= 2_s);
}

TEST_CASE("the next graceful request for a node has all its time, if the last one was never finished here") {
  Leader leader;
  leader.Begin(Record());
  leader.Step(FenceGone{kOld});
  Node other;
  other.name = NodeName("n2"), other.node_id = NodeId("n2.0000000000000001");
  leader.Step(NodeSeen{other});
  Pod pod;
  pod.id = PodId("default/db-0"), pod.uid = Uid("p"), pod.node = NameOf(kNew), pod.running = true;
  pod.owner_kind = "StatefulSet";
  pod.volumes[kArray] = {VolumeId("v1")};
  leader.Step(PodSeen{pod});
  leader.Step(Heartbeat{kNew, "boot", 1, true, {}, {}, {VolumeId("v1")}, {}});
  leader.Step(ArrayView{kArray, leader.now, {{VolumeId("v1"), kNew, 1}}, {}});
  NodeFence record = Record();
  record.node = kNew, record.requested_by = "somebody", record.graceful = true;
  leader.Step(FenceSeen{record});
  REQUIRE(leader.All<DeletePod>().size() == 1);
  leader.now += 500_ms;
  leader.Step(FenceGone{kNew});  // as another leader finished it, or a person removed its finalizer
  leader.now += 600_s;
  leader.Step(LeaseSeen{"me", Version("1"), leader.now});
  leader.Step(ArrayView{kArray, leader.now, {{VolumeId("v1"), kNew, 1}}, {}});
  leader.Step(Tick{});
  record.uid = Uid("u2");
  leader.Step(FenceSeen{record});
  leader.now += 250_ms;
  leader.Step(Tick{});
  CHECK(leader.core.Leads());
  CHECK(leader.core.state().leaving_since.contains(kNew));
  CHECK(leader.All<FenceNode>().empty());
}

}  // namespace lunkeeper::fencing
