#pragma once
// The digests of iSCSI (RFC 7143, section 13.1): CRC32C, by ISA-L, which uses the processor's instructions
// for it. Pure functions; nothing allocates. Digests find accidents: an attacker who can change the data on
// the way can change the digest too.

#include <isa-l/crc.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lunkeeper::iscsi {

inline constexpr uint32_t kDigestSize = 4;

// `before`: the CRC of the bytes that come before these. ISA-L takes and gives what is inverted here, and
// does not change the bytes.
inline uint32_t Crc32c(const void* bytes, uint32_t size, uint32_t before = 0) {
  auto* const begin = static_cast<unsigned char*>(const_cast<void*>(bytes));
  return ~::crc32_iscsi(begin, static_cast<int>(size), ~before);
}

// On the wire its lowest byte is the first.
static_assert(std::endian::native == std::endian::little);
inline bool IsDigest(const uint8_t* digest, uint32_t crc) {
  return std::memcmp(digest, &crc, kDigestSize) == 0;
}

}  // namespace lunkeeper::iscsi
