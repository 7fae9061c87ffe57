// One block of 512 bytes, so that every disk writes it whole or not at all. Integers are little-endian. The
// magic tells a heartbeat from other data, the version says how to read the rest, and the checksum (CRC-32 of
// what is before it) finds a block that was torn all the same.
#include "devices/heartbeat/heartbeat_block.h"

#include <algorithm>
#include <boost/crc.hpp>
#include <boost/endian/arithmetic.hpp>
#include <cstring>
#include <string_view>

#include "base/hmac.h"

namespace lunkeeper {
namespace {

constexpr char kSectorMagic[] = "LKHEARTB";
constexpr uint32_t kSectorVersion = 1;

struct Layout {
  char magic[8];
  boost::endian::little_uint32_t version;
  boost::endian::little_uint16_t boot_size;
  boost::endian::little_uint16_t node_size;
  boost::endian::little_uint64_t sequence;
  char boot[64];
  char node[256];
  char signature[kHmacBytes];
  char zero[132];
  boost::endian::little_uint32_t checksum;
};
static_assert(sizeof(Layout) == kSectorBytes);

absl::Status Malformed(const char* why) {
  return absl::InvalidArgumentError(std::string("heartbeat block: ") + why);
}

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

// The word keeps it from being taken for a signature of another kind with the same key.
std::string SignatureOf(const Layout& layout, const std::string& key) {
  return HmacSha256(
      key, "heartbeat" + std::string(reinterpret_cast<const char*>(&layout), offsetof(Layout, signature)));
}

}  // namespace

std::string WriteHeartbeatBlock(const HeartbeatBlock& block, const std::string& key) {
  Layout layout{};
  const std::string& node = block.node.value();
  std::memcpy(layout.magic, kSectorMagic, sizeof(layout.magic));
  layout.version = kSectorVersion;
  // copy() would cut a longer text. A node id has at most 190 bytes, a boot id 36.
  layout.boot_size = static_cast<uint16_t>(block.boot.copy(layout.boot, sizeof(layout.boot)));
  layout.node_size = static_cast<uint16_t>(node.copy(layout.node, sizeof(layout.node)));
  layout.sequence = block.sequence;
  if (!key.empty()) SignatureOf(layout, key).copy(layout.signature, sizeof(layout.signature));
  layout.checksum = ChecksumOf(&layout, offsetof(Layout, checksum));
  return {reinterpret_cast<const char*>(&layout), sizeof(layout)};
}

absl::StatusOr<HeartbeatBlock> ReadHeartbeatBlock(const std::string& bytes, const std::string& key) {
  if (bytes.size() != kSectorBytes) return Malformed("it is not of 512 bytes");
  // A new LUN is all zeroes.
  if (bytes.find_first_not_of('\0') == std::string::npos)
    return absl::NotFoundError("heartbeat block: nothing was written yet");
  Layout layout{};
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  if (std::memcmp(layout.magic, kSectorMagic, sizeof(layout.magic)) != 0)
    return Malformed("it does not begin with LKHEARTB");
  // Before the version: a torn block must not be reported as one of another version.
  if (layout.checksum != ChecksumOf(&layout, offsetof(Layout, checksum)))
    return Malformed("its checksum is wrong");
  if (layout.version != kSectorVersion) return Malformed("its version is not 1");
  if (layout.boot_size > sizeof(layout.boot) || layout.node_size > sizeof(layout.node))
    return Malformed("a text in it is longer than its field");
  if (!key.empty() && !IsSameSecret({layout.signature, sizeof(layout.signature)}, SignatureOf(layout, key)))
    return absl::UnauthenticatedError("heartbeat block: it is not signed with the key of its LUN");
  HeartbeatBlock block{.node = NodeId(std::string(layout.node, layout.node_size)),
                       .boot = std::string(layout.boot, layout.boot_size),
                       .sequence = layout.sequence};
  // A node writes what it likes here, and the names end up in logs.
  if (!IsPrintable(block.boot) || !IsPrintable(block.node.value()))
    return Malformed("a text in it has unprintable characters");
  return block;
}

uint32_t ChecksumOf(const void* bytes, size_t size) {
  boost::crc_32_type crc;
  crc.process_bytes(bytes, size);
  return crc.checksum();
}

}  // namespace lunkeeper
