// Whatever stands on a keeper LUN: it is refused, or reads the same when it is written again.

#include <boost/endian/conversion.hpp>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "devices/heartbeat/keeper_note.h"
#include "devices/heartbeat/keeper_sector.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lunkeeper;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (const auto note = ReadNote(bytes); note.ok() && *ReadNote(WriteNote(*note)) != *note) std::abort();
  bytes.resize(kSectorBytes);
  const uint32_t checksum = ChecksumOf(bytes.data(), kSectorBytes - 4);
  boost::endian::store_little_u32(reinterpret_cast<unsigned char*>(&bytes[kSectorBytes - 4]), checksum);
  const auto sector = ReadSector(bytes);
  if (sector.ok() && *ReadSector(WriteSector(*sector)) != *sector) std::abort();
  return 0;
}
