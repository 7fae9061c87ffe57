#pragma once
// What a node writes to the first block of its heartbeat LUN: a record of 512 bytes, little-endian.
//
//     0  8  "LKHEARTB"
//     8  4  version, 1
//    12  2  length of the boot id          14  2  length of the node's id
//    16  8  sequence
//    24 64  boot id                        88 256  node's id, `<name>.<instance>`
//   344 32  signature of all before it, where node and array have a key: HMAC-SHA256 of "heartbeat" and it
//   508  4  CRC-32 (IEEE 802.3) of all before it
//
// Everything else is zero. A reader without the key does not look at the signature. Pure functions. What is
// read was written by others: nothing in it is taken on trust but what the checksum and the lengths allow,
// and whose it is must be compared with whose LUN it is.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "devices/types.h"

namespace lunkeeper {

constexpr size_t kSectorBytes = 512;

struct HeartbeatBlock {
  NodeId node;
  std::string boot;
  uint64_t sequence = 0;  // rises within a boot
  friend bool operator==(const HeartbeatBlock&, const HeartbeatBlock&) = default;
};

// kSectorBytes long. A boot id that is longer than its field is cut; a node's id must fit. `key` empty: it is
// not signed.
std::string WriteHeartbeatBlock(const HeartbeatBlock& block, const std::string& key = "");
// INVALID_ARGUMENT: it is no such record; the message says why. NOT_FOUND: nothing was ever written, all is
// zero. UNAUTHENTICATED: there is a key, and it is not signed with it.
absl::StatusOr<HeartbeatBlock> ReadHeartbeatBlock(const std::string& bytes, const std::string& key = "");

// The CRC-32 of this record and of fence_notice.h's.
uint32_t ChecksumOf(const void* bytes, size_t size);

}  // namespace lunkeeper
