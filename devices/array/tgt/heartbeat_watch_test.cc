// What the array makes of the blocks that nodes write to their heartbeat LUNs.

#include "devices/array/tgt/heartbeat_watch.h"

#include <catch2/catch.hpp>

#include "devices/heartbeat/heartbeat_block.h"

namespace lunkeeper {
namespace {

using std::chrono::milliseconds;

const NodeId kNode("worker-1.0123456789abcdef");

HeartbeatBlock Block(uint64_t sequence, const NodeId& node = kNode) {
  return {.node = node, .boot = "b6c1a5de-0000-4000-8000-000000000001", .sequence = sequence};
}

// One that would be good but for the change of a byte.
std::string Damaged(std::string bytes) {
  bytes[17] = 1;
  return bytes;
}

TEST_CASE("a heartbeat is a sequence that changes, and its age is of the observer's clock") {
  HeartbeatWatch watch(kNode);
  const HeartbeatWatch::Time start;
  CHECK(watch.TakeBlock(std::string(kSectorBytes, '\0'), start).ok());
  CHECK_FALSE(watch.LastHeartbeat(start));
  CHECK(watch.TakeBlock(WriteHeartbeatBlock(Block(5)), start + milliseconds(500)).ok());
  CHECK(watch.TakeBlock(WriteHeartbeatBlock(Block(5)), start + milliseconds(750)).ok());
  REQUIRE(watch.LastHeartbeat(start + milliseconds(1000)));
  CHECK(watch.LastHeartbeat(start + milliseconds(1000))->age == absl::Milliseconds(500));
  CHECK(watch.LastHeartbeat(start + milliseconds(1000))->sequence == 5);
  // Also one that falls: the node was started again.
  CHECK(watch.TakeBlock(WriteHeartbeatBlock(Block(1)), start + milliseconds(1250)).ok());
  CHECK(watch.LastHeartbeat(start + milliseconds(1250))->age == absl::ZeroDuration());
}

TEST_CASE("what stood there before the observer came is no heartbeat") {
  HeartbeatWatch watch(kNode);
  const HeartbeatWatch::Time start;
  CHECK(watch.TakeBlock(WriteHeartbeatBlock(Block(5)), start).ok());
  CHECK_FALSE(watch.LastHeartbeat(start + milliseconds(100)));
  CHECK(watch.TakeBlock(WriteHeartbeatBlock(Block(6)), start + milliseconds(250)).ok());
  CHECK(watch.LastHeartbeat(start + milliseconds(250)));
}

TEST_CASE("with a key only what the node signs is a heartbeat, and each of it once") {
  HeartbeatWatch watch(kNode);
  watch.SetKey("key");
  HeartbeatWatch::Time now;
  const auto counts = [&](const std::string& bytes) {
    now += milliseconds(250);
    watch.TakeBlock(bytes, now).IgnoreError();
    const auto heartbeat = watch.LastHeartbeat(now);
    return heartbeat && heartbeat->age == absl::ZeroDuration();
  };
  const auto of_boot = [](const char* boot, uint64_t sequence) {
    return WriteHeartbeatBlock({.node = kNode, .boot = boot, .sequence = sequence}, "key");
  };
  CHECK_FALSE(counts(std::string(kSectorBytes, '\0')));
  CHECK_FALSE(counts(WriteHeartbeatBlock(Block(1))));
  CHECK_FALSE(counts(WriteHeartbeatBlock(Block(1), "other")));
  CHECK(counts(of_boot("one", 5)));
  CHECK_FALSE(counts(of_boot("one", 5)));
  CHECK_FALSE(counts(of_boot("one", 4)));
  CHECK(counts(of_boot("one", 6)));
  CHECK(counts(of_boot("two", 1)));
  CHECK_FALSE(counts(of_boot("one", 7)));
  CHECK(absl::IsUnauthenticated(watch.TakeBlock(of_boot("one", 7), now)));
  CHECK_FALSE(counts(WriteHeartbeatBlock(Block(100))));
  CHECK(counts(of_boot("two", 2)));
}

TEST_CASE("a node that begins to sign, or ends to, is heard on") {
  HeartbeatWatch watch(kNode);
  HeartbeatWatch::Time now;
  CHECK(watch.TakeBlock(WriteHeartbeatBlock(Block(1)), now).ok());
  CHECK(watch.TakeBlock(WriteHeartbeatBlock(Block(2)), now += milliseconds(250)).ok());
  const auto before = watch.LastHeartbeat(now);
  watch.SetKey("key");
  CHECK(watch.LastHeartbeat(now)->age == before->age);
  CHECK(watch.TakeBlock(WriteHeartbeatBlock(Block(2)), now += milliseconds(250)).ok());  // not said at once
  CHECK(watch.TakeBlock(WriteHeartbeatBlock(Block(3), "key"), now += milliseconds(250)).ok());
  CHECK(watch.TakeBlock(WriteHeartbeatBlock(Block(4), "key"), now += milliseconds(250)).ok());
  CHECK(watch.LastHeartbeat(now)->age == absl::ZeroDuration());
  watch.SetKey("");
  CHECK(watch.TakeBlock(WriteHeartbeatBlock(Block(5)), now += milliseconds(250)).ok());
  CHECK(watch.TakeBlock(WriteHeartbeatBlock(Block(6)), now += milliseconds(250)).ok());
  CHECK(watch.LastHeartbeat(now)->age == absl::ZeroDuration());
}

TEST_CASE("a block that is malformed or another node's changes nothing, and is said once") {
  const std::string wrong = GENERATE(Damaged(WriteHeartbeatBlock(Block(7))),
                                     WriteHeartbeatBlock(Block(9, NodeId("worker-2.0123456789abcdef"))));
  HeartbeatWatch watch(kNode);
  const HeartbeatWatch::Time start;
  CHECK(watch.TakeBlock(WriteHeartbeatBlock(Block(5)), start).ok());
  CHECK(watch.TakeBlock(WriteHeartbeatBlock(Block(6)), start).ok());
  for (int round = 0; round < 2; ++round) {
    CHECK(watch.TakeBlock(wrong, start + milliseconds(250)).ok());  // it may be half of a write
    CHECK(absl::IsInvalidArgument(watch.TakeBlock(wrong, start + milliseconds(500))));
    CHECK(watch.TakeBlock(wrong, start + milliseconds(750)).ok());
    CHECK(watch.LastHeartbeat(start + milliseconds(750))->age == absl::Milliseconds(750));
    CHECK(watch.TakeBlock(WriteHeartbeatBlock(Block(6)), start + milliseconds(1000)).ok());
  }
  CHECK(watch.LastHeartbeat(start)->sequence == 6);
}

}  // namespace
}  // namespace lunkeeper
