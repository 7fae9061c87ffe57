// What nodes and arrays write to heartbeat LUNs.

#include <catch2/catch.hpp>

#include "devices/heartbeat/fence_notice.h"
#include "devices/heartbeat/heartbeat_block.h"

namespace lunkeeper {
namespace {

const NodeId kNode("worker-1.0123456789abcdef");

HeartbeatBlock Sector(uint64_t sequence, const NodeId& node = kNode) {
  return {.node = node, .boot = "b6c1a5de-0000-4000-8000-000000000001", .sequence = sequence};
}

// One that would be good but for the change of a byte.
std::string Changed(size_t at, char to) {
  std::string bytes = WriteHeartbeatBlock(Sector(7));
  bytes[at] = to;
  return bytes;
}

TEST_CASE("a block reads as it was written") {
  const HeartbeatBlock block = Sector(0x1122334455667788);
  const std::string bytes = WriteHeartbeatBlock(block);
  CHECK(bytes.size() == kSectorBytes);
  CHECK(bytes.substr(0, 8) == "LKHEARTB");
  CHECK(bytes.substr(16, 8) == "\x88\x77\x66\x55\x44\x33\x22\x11");
  REQUIRE(ReadHeartbeatBlock(bytes).ok());
  CHECK(*ReadHeartbeatBlock(bytes) == block);
  const HeartbeatBlock longest{
      .node = NodeId(std::string(256, 'n')), .boot = std::string(64, 'b'), .sequence = 1};
  CHECK(*ReadHeartbeatBlock(WriteHeartbeatBlock(longest)) == longest);
}

TEST_CASE("a malformed block is refused, whatever of it is wrong") {
  CHECK(absl::IsNotFound(ReadHeartbeatBlock(std::string(kSectorBytes, '\0')).status()));
  for (const std::string& bytes :
       {std::string(), std::string(kSectorBytes, 'x'), WriteHeartbeatBlock(Sector(7)).substr(1),
        Changed(0, 'l'), Changed(8, 2), Changed(12, 1), Changed(17, 1), Changed(90, 'X'), Changed(400, 1),
        Changed(511, 0)}) {
    CHECK(absl::IsInvalidArgument(ReadHeartbeatBlock(bytes).status()));
  }
}

TEST_CASE("a block with control characters in its texts is refused") {
  CHECK(
      absl::IsInvalidArgument(ReadHeartbeatBlock(WriteHeartbeatBlock(Sector(1, NodeId("a\nb.1")))).status()));
}

TEST_CASE("a notice reads as it was written, and its first block tells how long it is") {
  const FenceNotice notice{.generation = 7, .volumes = {VolumeId("a1-v0000000000000001"), VolumeId("a1-v2")}};
  const std::string bytes = WriteFenceNotice(notice);
  CHECK(bytes.size() == 2 * kSectorBytes);
  CHECK(*NoteBytes(bytes.substr(0, kSectorBytes)) == bytes.size());
  CHECK(*ReadFenceNotice(bytes) == notice);
  CHECK(*ReadFenceNotice(WriteFenceNotice({.generation = 8, .volumes = {}})) ==
        FenceNotice{.generation = 8, .volumes = {}});
  CHECK(WriteFenceNotice({}) == std::string(kSectorBytes, '\0'));
}

TEST_CASE("a notice of too many volumes names those there is room for") {
  const FenceNotice notice{.generation = 7,
                           .volumes = std::vector<VolumeId>(5000, VolumeId("a1-v0000000000000001"))};
  const std::string bytes = WriteFenceNotice(notice);
  CHECK(bytes.size() <= (64 << 10) - kNoteBlock * kSectorBytes);
  CHECK(ReadFenceNotice(bytes)->volumes.size() > 1000);
}

TEST_CASE("what is signed reads with its key, and with another key or none of it is refused") {
  const HeartbeatBlock block = Sector(7);
  const FenceNotice notice{.generation = 7, .volumes = {VolumeId("a1-v1")}};
  const std::string signed_block = WriteHeartbeatBlock(block, "key"),
                    signed_notice = WriteFenceNotice(notice, "key");
  CHECK(*ReadHeartbeatBlock(signed_block, "key") == block);
  CHECK(*ReadFenceNotice(signed_notice, "key") == notice);
  for (const std::string& other : {WriteHeartbeatBlock(block, "other"), WriteHeartbeatBlock(block)})
    CHECK(absl::IsUnauthenticated(ReadHeartbeatBlock(other, "key").status()));
  for (const std::string& other : {WriteFenceNotice(notice, "other"), WriteFenceNotice(notice)})
    CHECK(absl::IsUnauthenticated(ReadFenceNotice(other, "key").status()));
  // To an older reader it is what it was.
  CHECK(*ReadHeartbeatBlock(signed_block) == block);
  CHECK(*ReadFenceNotice(signed_notice) == notice);
  CHECK(absl::IsNotFound(ReadHeartbeatBlock(std::string(kSectorBytes, '\0'), "key").status()));
}

TEST_CASE("a signature is of every part of what it signs") {
  const std::string block = WriteHeartbeatBlock(Sector(7), "key").substr(344, 32);
  CHECK(WriteHeartbeatBlock(Sector(8), "key").substr(344, 32) != block);
  CHECK(WriteHeartbeatBlock(Sector(7, NodeId("worker-2.0123456789abcdef")), "key").substr(344, 32) != block);
  const auto signature = [](Generation generation, const char* volume) {
    return WriteFenceNotice({.generation = generation, .volumes = {VolumeId(volume)}}, "key").substr(28, 32);
  };
  CHECK(signature(7, "a1-v1") != signature(8, "a1-v1"));
  CHECK(signature(7, "a1-v1") != signature(7, "a1-v2"));
}

TEST_CASE("a malformed notice is refused, and half of one too") {
  const std::string good =
      WriteFenceNotice({.generation = 7, .volumes = {VolumeId("a1-v1"), VolumeId("a1-v2")}});
  for (const size_t at :
       {size_t{0}, size_t{8}, size_t{13}, size_t{16}, size_t{24}, size_t{511}, kSectorBytes}) {
    std::string bytes = good;
    ++bytes[at];
    CHECK(absl::IsInvalidArgument(ReadFenceNotice(bytes).status()));
  }
  CHECK(absl::IsInvalidArgument(ReadFenceNotice(good.substr(0, kSectorBytes)).status()));
  CHECK(absl::IsInvalidArgument(NoteBytes(std::string(kSectorBytes, '\0')).status()));
}

}  // namespace
}  // namespace lunkeeper
