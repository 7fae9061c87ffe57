// Whatever stands on a heartbeat LUN: it is refused, or reads the same when it is written again.

#include <boost/endian/conversion.hpp>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "devices/heartbeat/fence_notice.h"
#include "devices/heartbeat/heartbeat_block.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lunkeeper;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (const auto notice = ReadFenceNotice(bytes);
      notice.ok() && *ReadFenceNotice(WriteFenceNotice(*notice)) != *notice)
    std::abort();
  bytes.resize(kSectorBytes);
  const uint32_t checksum = ChecksumOf(bytes.data(), kSectorBytes - 4);
  boost::endian::store_little_u32(reinterpret_cast<unsigned char*>(&bytes[kSectorBytes - 4]), checksum);
  const auto block = ReadHeartbeatBlock(bytes);
  if (block.ok() && *ReadHeartbeatBlock(WriteHeartbeatBlock(*block)) != *block) std::abort();
  return 0;
}
