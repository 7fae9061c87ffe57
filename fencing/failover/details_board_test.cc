#include "fencing/failover/details_board.h"

#include <catch2/catch.hpp>

namespace lunkeeper::fencing {
namespace {

const NodeId kHere("n1.00000000000000aa"), kRebuilt("n1.00000000000000bb");
const VolumeId kVolumeA("a1-v1"), kVolumeB("a1-v2");

DeviceDetail On(const std::string& device) { return {.device = device, .paths = {}, .mounts = {}}; }

}  // namespace

TEST_CASE("what a node said of a device is kept while it has it, and not of another instance") {
  DetailsBoard board;
  const Instant now(10_s);
  CHECK(board.Find(kHere, kVolumeA).device.empty());
  board.OnDetails(kHere, {kVolumeA, kVolumeB}, {{kVolumeA, On("/dev/loop1")}}, now);
  board.OnDetails(kHere, {kVolumeA, kVolumeB}, {{kVolumeB, On("/dev/loop2")}}, now);
  CHECK(board.Find(kHere, kVolumeA).device == "/dev/loop1");
  CHECK(board.Find(kHere, kVolumeB).device == "/dev/loop2");
  CHECK(board.Find(kRebuilt, kVolumeA).device.empty());
  board.OnDetails(kHere, {kVolumeB}, {}, now);
  CHECK(board.Find(kHere, kVolumeA).device.empty());
  CHECK(board.Find(kHere, kVolumeB).device == "/dev/loop2");
  board.OnDetails(kRebuilt, {kVolumeB}, {}, now);
  CHECK(board.Find(kHere, kVolumeB).device.empty());
}

TEST_CASE("a node cannot describe what it does not have, nor have each heartbeat written down") {
  DetailsBoard board;
  board.OnDetails(kHere, {kVolumeA}, {{kVolumeB, On("/dev/loop2")}}, Instant(10_s));
  CHECK(board.Find(kHere, kVolumeB).device.empty());
  board.OnDetails(kHere, {kVolumeA}, {{kVolumeA, On("/dev/loop1")}}, Instant(10_s));
  board.OnDetails(kHere, {kVolumeA}, {{kVolumeA, On("/dev/loop9")}}, Instant(11_s));
  CHECK(board.Find(kHere, kVolumeA).device == "/dev/loop1");
  board.OnDetails(kHere, {kVolumeA}, {{kVolumeA, On("/dev/loop9")}}, Instant(16_s));
  CHECK(board.Find(kHere, kVolumeA).device == "/dev/loop9");
}

TEST_CASE("what a machine said that died in use is forgotten after an hour, and not before") {
  const NodeId other("n2.00000000000000aa");
  DetailsBoard board;
  board.OnDetails(kHere, {kVolumeA}, {{kVolumeA, On("/dev/loop1")}}, Instant(100_s));
  board.OnDetails(other, {kVolumeB}, {{kVolumeB, On("/dev/loop2")}}, Instant(3600_s));
  CHECK(board.Find(kHere, kVolumeA).device == "/dev/loop1");
  board.OnDetails(other, {kVolumeB}, {}, Instant(3760_s));
  CHECK(board.Find(kHere, kVolumeA).device.empty());
  CHECK(board.Find(other, kVolumeB).device == "/dev/loop2");
}

}  // namespace lunkeeper::fencing
