#include "devices/filesystem/superblock.h"

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

// Fields of struct ext4_super_block: s_blocks_count_lo 0x04, s_log_block_size 0x18, s_magic 0x38,
// s_feature_incompat 0x60, s_blocks_count_hi 0x150.
std::optional<uint64_t> Ext4Bytes(const std::string& head) {
  constexpr size_t kAt = 1024;
  constexpr uint64_t kSixtyFourBit = 0x80;  // of s_feature_incompat
  if (LittleEndian(head, kAt + 0x38, 2) != 0xEF53) return std::nullopt;
  const uint64_t log_block_bytes = LittleEndian(head, kAt + 0x18, 4);
  if (log_block_bytes > 6) return std::nullopt;
  uint64_t blocks = LittleEndian(head, kAt + 0x04, 4);
  if (LittleEndian(head, kAt + 0x60, 4) & kSixtyFourBit) blocks |= LittleEndian(head, kAt + 0x150, 4) << 32;
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

}  // namespace lunkeeper
