#pragma once
// What the array writes on a node's heartbeat LUN for that node to read: the fence in force against it, so
// that a node without a path to the controllers learns of it too. Whole blocks from block kNoteBlock on,
// little-endian; all zero when there is no fence.
//
//     0  8  "LKFENCED"          8  4  version, 1
//    12  4  bytes of the text  16  8  the fence's generation
//    24  4  CRC-32 of the text
//    28 32  signature, where node and array have a key: HMAC-SHA256 of "fence notice", all before it, and the
//    text
//   508  4  CRC-32 of all before it
//   512  …  the text: ids of the fenced volumes, each followed by a newline
//
// The first block tells whether there is news, and how many blocks there are. Pure functions.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/types.h"

namespace lunkeeper {

constexpr uint64_t kNoteBlock = 8;

struct FenceNotice {
  Generation generation = 0;  // 0: there is no fence
  std::vector<VolumeId> volumes;
  friend bool operator==(const FenceNotice&, const FenceNotice&) = default;
};

// Of a fence with more volumes than there is room for, the first ones: a node learns of the rest when their
// targets refuse it.
// `key` empty: it is not signed.
std::string WriteFenceNotice(const FenceNotice& notice, const std::string& key = "");
// How long the notice is that begins with this block. INVALID_ARGUMENT: it is no such block.
absl::StatusOr<size_t> NoteBytes(const std::string& first_block);
// INVALID_ARGUMENT: it is malformed, or was read while it was being written. UNAUTHENTICATED: there is a key,
// and it is not signed with it.
absl::StatusOr<FenceNotice> ReadFenceNotice(const std::string& bytes, const std::string& key = "");

}  // namespace lunkeeper
