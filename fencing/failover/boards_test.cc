// What a replica tells others who ask: whom it hears, and what it sees.

#include <catch2/catch.hpp>

#include "fencing/failover/heard_nodes.h"
#include "fencing/failover/sight_board.h"

namespace lunkeeper::fencing {
namespace {

const NodeId kHeard("n1.0000000000000001");

}  // namespace

TEST_CASE("a node is heard by its last heartbeat for a second, and not after it has closed its stream") {
  HeardNodes heard(60_s);
  CHECK_FALSE(heard.Hears(kHeard, Instant(100_s)));
  heard.NoteHeartbeat(kHeard, Instant(100_s));
  CHECK(heard.Hears(kHeard, Instant(100_s) + 900_ms));
  CHECK_FALSE(heard.Hears(kHeard, Instant(101_s)));
  heard.NoteHeartbeat(kHeard, Instant(102_s));
  heard.NoteEnd(kHeard, Instant(102_s));
  CHECK_FALSE(heard.Hears(kHeard, Instant(102_s)));
}

TEST_CASE("a kernel goes on for two seconds after it closed the stream or answered, until a plugin is back") {
  HeardNodes heard(60_s);
  heard.NoteHeartbeat(kHeard, Instant(100_s));
  heard.NoteAnswer(kHeard, Instant(100_s));  // as of each node that is well
  CHECK_FALSE(heard.KernelAnswers(kHeard, Instant(101_s)));
  heard.NoteEnd(kHeard, Instant(101_s));
  CHECK(heard.KernelAnswers(kHeard, Instant(101_s) + 1900_ms));
  CHECK_FALSE(heard.KernelAnswers(kHeard, Instant(103_s)));
  heard.NoteAnswer(kHeard, Instant(140_s));
  CHECK(heard.KernelAnswers(kHeard, Instant(141_s)));
  heard.NoteHeartbeat(kHeard, Instant(141_s));
  CHECK_FALSE(heard.KernelAnswers(kHeard, Instant(141_s)));
}

TEST_CASE(
    "a plugin that ended and is not back after two minutes is not being upgraded, for all its kernel "
    "answers") {
  HeardNodes heard(60_s);
  const auto answers_until = [&](Instant end) {
    heard.NoteEnd(kHeard, Instant(100_s));
    for (Instant now(100_s); now < end; now += 1_s) heard.NoteAnswer(kHeard, now);
    return heard.KernelAnswers(kHeard, end);
  };
  CHECK(answers_until(Instant(219_s)));
  CHECK_FALSE(answers_until(Instant(220_s)));
  CHECK_FALSE(answers_until(Instant(4000_s)));
  heard.SetProbation(5000_s);
  CHECK(answers_until(Instant(4000_s)));
}

TEST_CASE("a node that is gone for good is forgotten, and one whose kernel goes on is not") {
  const NodeId other("n2.0000000000000001");
  HeardNodes heard(60_s);
  for (const auto& node : {kHeard, other}) {
    heard.NoteHeartbeat(node, Instant(100_s));
    heard.NoteEnd(node, Instant(100_s));
  }
  heard.NoteAnswer(kHeard, Instant(159_s));
  heard.NoteHeartbeat(NodeId("n3.0000000000000001"), Instant(161_s));  // sweeps
  heard.NoteAnswer(other, Instant(161_s));
  CHECK_FALSE(heard.KernelAnswers(other, Instant(161_s)));
  heard.NoteAnswer(kHeard, Instant(161_s));
  CHECK(heard.KernelAnswers(kHeard, Instant(161_s)));
}

TEST_CASE("what a replica saw says nothing a second later, as its thread may hang") {
  const ReplicaSight sight{.replica = "replica-1", .age = 60_s, .arrays = 2, .nodes = 5};
  SightBoard board;
  board.Note(sight, Instant(100_s));
  CHECK(board.Latest(Instant(100_s) + 900_ms) == sight);
  CHECK_FALSE(board.Latest(Instant(101_s)));
  board.Note(std::nullopt, Instant(102_s));
  CHECK_FALSE(board.Latest(Instant(102_s)));
}

}  // namespace lunkeeper::fencing
