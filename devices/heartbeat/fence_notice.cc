// A notice is a header of one block and a text of as many as it needs: the fenced volumes' ids, a line each.
// It is written with one call, but not in one piece: the reader may see the new header with the old text. The
// header carries the text's own checksum, so such a mixture is refused and read again.
#include "devices/heartbeat/fence_notice.h"

#include <boost/endian/arithmetic.hpp>
#include <cstring>

#include "absl/strings/str_split.h"
#include "base/hmac.h"
#include "base/status_macros.h"
#include "devices/heartbeat/heartbeat_block.h"

namespace lunkeeper {
namespace {

constexpr char kNoteMagic[] = "LKFENCED";
constexpr uint32_t kNoteVersion = 1;
// Ids have about 35 bytes, so some 900 volumes. The last of more are left out; the node learns of those from
// the controllers, or when its I/O is refused.
constexpr size_t kMostTextBytes = 32 << 10;

struct Header {
  char magic[8];
  boost::endian::little_uint32_t version;
  boost::endian::little_uint32_t text_bytes;
  boost::endian::little_uint64_t generation;
  boost::endian::little_uint32_t text_checksum;
  char signature[kHmacBytes];
  char zero[448];
  boost::endian::little_uint32_t checksum;
};
static_assert(sizeof(Header) == kSectorBytes);

absl::StatusOr<Header> ReadHeader(const std::string& bytes) {
  Header header{};
  if (bytes.size() < sizeof(header)) return absl::InvalidArgumentError("fence notice: it is too short");
  std::memcpy(&header, bytes.data(), sizeof(header));
  // The size is bounded here, since the node then reads as many bytes as the header says.
  const bool good = std::memcmp(header.magic, kNoteMagic, sizeof(header.magic)) == 0 &&
                    header.version == kNoteVersion &&
                    header.checksum == ChecksumOf(&header, offsetof(Header, checksum)) &&
                    header.text_bytes <= kMostTextBytes;
  if (good) return header;
  return absl::InvalidArgumentError("fence notice: it does not begin as one");
}

std::string SignatureOf(const Header& header, const std::string& text, const std::string& key) {
  const std::string signed_part(reinterpret_cast<const char*>(&header), offsetof(Header, signature));
  return HmacSha256(key, "fence notice" + signed_part + text);
}

size_t WholeBlocks(size_t bytes) { return (bytes + kSectorBytes - 1) / kSectorBytes * kSectorBytes; }

}  // namespace

std::string WriteFenceNotice(const FenceNotice& notice, const std::string& key) {
  // No fence: a block of zeroes replaces the last notice.
  if (notice.generation == 0) return std::string(kSectorBytes, '\0');
  std::string text;
  for (const VolumeId& volume : notice.volumes) {
    if (text.size() + volume.value().size() + 1 > kMostTextBytes) break;
    text += volume.value() + '\n';
  }
  Header header{};
  std::memcpy(header.magic, kNoteMagic, sizeof(header.magic));
  header.version = kNoteVersion;
  header.text_bytes = static_cast<uint32_t>(text.size());
  header.generation = notice.generation;
  header.text_checksum = ChecksumOf(text.data(), text.size());
  if (!key.empty()) SignatureOf(header, text, key).copy(header.signature, sizeof(header.signature));
  header.checksum = ChecksumOf(&header, offsetof(Header, checksum));
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes += text;
  bytes.resize(WholeBlocks(bytes.size()));
  return bytes;
}

absl::StatusOr<size_t> NoteBytes(const std::string& first_block) {
  ASSIGN_OR_RETURN(const Header header, ReadHeader(first_block));
  return sizeof(header) + WholeBlocks(header.text_bytes);
}

absl::StatusOr<FenceNotice> ReadFenceNotice(const std::string& bytes, const std::string& key) {
  ASSIGN_OR_RETURN(const Header header, ReadHeader(bytes));
  const std::string text = bytes.substr(sizeof(header), header.text_bytes);
  if (text.size() != header.text_bytes || header.text_checksum != ChecksumOf(text.data(), text.size()))
    return absl::InvalidArgumentError("fence notice: its text is not all there");
  if (!key.empty() &&
      !IsSameSecret({header.signature, sizeof(header.signature)}, SignatureOf(header, text, key)))
    return absl::UnauthenticatedError("fence notice: it is not signed with the key of its LUN");
  FenceNotice notice{.generation = header.generation, .volumes = {}};
  for (const absl::string_view volume : absl::StrSplit(text, '\n', absl::SkipEmpty()))
    notice.volumes.emplace_back(std::string(volume));
  return notice;
}

}  // namespace lunkeeper
