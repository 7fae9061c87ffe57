// What a replica tells others who ask: whom it hears, and what it sees.

#include <catch2/catch.hpp>

#include "fencing/failover/heard_nodes.h"
#include "fencing/failover/sight_board.h"

namespace lunkeeper::fencing {
namespace {

const NodeId kHeard("n1.0000000000000001");

}  // namespace

TEST_CASE("a node is heard by its last heartbeat for a second, and not after it has closed its stream") {
  HeardNodes heard;
  CHECK_FALSE(heard.Hears(kHeard, Instant(100_s)));
  heard.Note(kHeard, Instant(100_s));
  CHECK(heard.Hears(kHeard, Instant(100_s) + 900_ms));
  CHECK_FALSE(heard.Hears(kHeard, Instant(101_s)));
  heard.Note(kHeard, Instant(102_s));
  heard.Forget(kHeard);
  CHECK_FALSE(heard.Hears(kHeard, Instant(102_s)));
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
