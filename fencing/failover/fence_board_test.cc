#include "fencing/failover/fence_board.h"

#include <catch2/catch.hpp>

namespace lunkeeper::fencing {
namespace {

const ArrayId kArray("a1");
const NodeId kDead("n1.0000000000000001"), kOther("n2.0000000000000002");

ArrayFence FenceOf(const NodeId& node, Generation generation, const VolumeSet& volumes) {
  return {.node = node, .generation = generation, .volumes = volumes};
}

}  // namespace

TEST_CASE("a node that never learns of its fence keeps no slow look off the board") {
  FenceBoard board;
  const auto fence = FenceOf(kDead, 3, {VolumeId("v1")});
  board.OnFenced(kArray, fence, Instant(10_s));
  // The core repeats it each second. A look takes three, and shows a fence that an operator made meanwhile.
  for (Span at = 11_s; at <= 20_s; at = at + 1_s) board.OnNotify({kDead, kArray, fence}, Instant(at));
  board.OnArrayView(
      {kArray, Instant(17_s), {}, {fence, FenceOf(kOther, 4, {VolumeId("v2")})}, {}, std::nullopt});
  CHECK(board.FencesOf(kOther).contains(kArray));
}

TEST_CASE("the board keeps what is not drained yet, which the core leaves out") {
  FenceBoard board;
  board.OnArrayView(
      {kArray, Instant(10_s), {}, {FenceOf(kDead, 3, {VolumeId("v1"), VolumeId("v2")})}, {}, std::nullopt});
  board.OnNotify({kDead, kArray, FenceOf(kDead, 3, {VolumeId("v1")})}, Instant(11_s));
  CHECK(board.FencesOf(kDead).at(kArray).volumes.size() == 2);
}

TEST_CASE("a node is told at once of a fence that no look has shown yet") {
  FenceBoard board;
  board.OnNotify({kDead, kArray, FenceOf(kDead, 3, {VolumeId("v1")})}, Instant(11_s));
  board.OnArrayView({kArray, Instant(10_s), {}, {}, {}, std::nullopt});  // asked for before that
  CHECK(board.FencesOf(kDead).at(kArray).generation == 3);
}

}  // namespace lunkeeper::fencing
