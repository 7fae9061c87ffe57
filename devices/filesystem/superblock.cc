#include "devices/filesystem/superblock.h"

#include "absl/strings/escaping.h"

namespace lunkeeper {
namespace {

uint64_t LittleEndian(const std::string& bytes, size_t at, size_t width) {
  uint64_t value = 0;
  for (size_t i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

uint64_t BigEndian(const std::string& bytes, size_t at, size_t width) {
  uint64_t value = 0;
  for (size_t i = 0; i < width; ++i) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

// nullopt for a size that cannot be: the bytes may be anybody's.
std::optional<uint64_t> SizeInBytes(uint64_t blocks, uint64_t block_bytes) {
  if (blocks == 0 || blocks > INT64_MAX / block_bytes) return std::nullopt;
  return blocks * block_bytes;
}

constexpr size_t kExt4At = 1024;

bool IsExt4(const std::string& head) { return LittleEndian(head, kExt4At + 0x38, 2) == 0xEF53; }

// Fields of struct ext4_super_block: s_blocks_count_lo 0x04, s_log_block_size 0x18, s_magic 0x38,
// s_feature_incompat 0x60, s_blocks_count_hi 0x150.
std::optional<uint64_t> Ext4Bytes(const std::string& head) {
  constexpr uint64_t kSixtyFourBit = 0x80;  // of s_feature_incompat
  if (!IsExt4(head)) return std::nullopt;
  const uint64_t log_block_bytes = LittleEndian(head, kExt4At + 0x18, 4);
  if (log_block_bytes > 6) return std::nullopt;
  uint64_t blocks = LittleEndian(head, kExt4At + 0x04, 4);
  if (LittleEndian(head, kExt4At + 0x60, 4) & kSixtyFourBit)
    blocks |= LittleEndian(head, kExt4At + 0x150, 4) << 32;
  return SizeInBytes(blocks, uint64_t{1024} << log_block_bytes);
}

// Fields of struct xfs_dsb: sb_magicnum 0, sb_blocksize 4, sb_dblocks 8.
std::optional<uint64_t> XfsBytes(const std::string& head) {
  if (head.compare(0, 4, "XFSB") != 0) return std::nullopt;
  const uint64_t block_bytes = BigEndian(head, 4, 4);
  if (block_bytes < 512 || block_bytes > 65536) return std::nullopt;
  return SizeInBytes(BigEndian(head, 8, 8), block_bytes);
}

}  // namespace

std::optional<uint64_t> FilesystemBytes(FilesystemType type, const std::string& head) {
  if (head.size() < kSuperblockBytes) return std::nullopt;
  return type == FilesystemType::kExt4 ? Ext4Bytes(head) : XfsBytes(head);
}

std::optional<std::string> Ext4UseStamp(const std::string& head) {
  if (head.size() < kSuperblockBytes || !IsExt4(head)) return std::nullopt;
  const auto field = [&head](size_t at, size_t width) { return head.substr(kExt4At + at, width); };
  // s_uuid, s_mtime, s_mnt_count, s_lastcheck
  return absl::BytesToHexString(field(0x68, 16) + field(0x2C, 4) + field(0x34, 2) + field(0x40, 4));
}

bool Ext4HasErrors(const std::string& head) {
  constexpr uint64_t kErrorFs = 2;  // of s_state
  return head.size() >= kSuperblockBytes && (LittleEndian(head, kExt4At + 0x3A, 2) & kErrorFs) != 0;
}

}  // namespace lunkeeper
