#pragma once
// The shapes of iSCSI PDUs on the wire (RFC 7143, section 11): numbers, offsets, byte order. Nothing here has
// state.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lunkeeper::iscsi {

inline constexpr size_t kHeaderSize = 48;  // the basic header segment
using Header = std::array<uint8_t, kHeaderSize>;

enum Opcode : uint8_t {
  kNopOut = 0x00,
  kScsiCommand = 0x01,
  kTaskManagement = 0x02,
  kLoginRequest = 0x03,
  kDataOut = 0x05,
  kLogoutRequest = 0x06,
  kNopIn = 0x20,
  kScsiResponse = 0x21,
  kTaskManagementResponse = 0x22,
  kLoginResponse = 0x23,
  kDataIn = 0x25,
  kLogoutResponse = 0x26,
  kR2t = 0x31,
  kAsyncMessage = 0x32,
  kReject = 0x3f,
};
inline constexpr uint8_t kOpcodeMask = 0x3f;
inline constexpr uint8_t kImmediate = 0x40;  // in the opcode byte

inline constexpr uint8_t kFinal = 0x80;  // in byte 1, of most PDUs
inline constexpr uint8_t kCommandRead = 0x40;
inline constexpr uint8_t kCommandWrite = 0x20;
inline constexpr uint8_t kAttributeSimple = 0x01;
inline constexpr uint8_t kDataInStatus = 0x01;
inline constexpr uint8_t kResidualUnderflow = 0x02;
inline constexpr uint8_t kResidualOverflow = 0x04;
inline constexpr uint8_t kLoginTransit = 0x80;
inline constexpr uint8_t kLoginContinue = 0x40;
inline constexpr uint8_t kRejectDataDigest = 2;  // reason of a reject
inline constexpr uint8_t kLogicalUnitReset = 5;  // function of a task management request

inline constexpr uint32_t kNoTag = 0xffffffff;

// Offsets of fields that several PDUs share.
inline constexpr size_t kAhsLengthAt = 4, kDataLengthAt = 5, kLunAt = 8, kTagAt = 16, kTargetTagAt = 20;
inline constexpr size_t kExpectedLengthAt = 20, kCdbAt = 32;                     // SCSI command
inline constexpr size_t kCmdSnAt = 24, kExpStatSnAt = 28;                        // to the target
inline constexpr size_t kStatSnAt = 24, kExpCmdSnAt = 28, kMaxCmdSnAt = 32;      // from the target
inline constexpr size_t kDataSnAt = 36, kBufferOffsetAt = 40, kResidualAt = 44;  // data, R2T and responses
inline constexpr size_t kR2tLengthAt = 44;
inline constexpr size_t kLogoutTimeToWaitAt = 40;

inline uint16_t Get16(const uint8_t* p) { return static_cast<uint16_t>(p[0] << 8 | p[1]); }
inline uint32_t Get24(const uint8_t* p) { return uint32_t{p[0]} << 16 | uint32_t{p[1]} << 8 | p[2]; }
inline uint32_t Get32(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof value);
  return __builtin_bswap32(value);
}
inline uint64_t Get64(const uint8_t* p) { return uint64_t{Get32(p)} << 32 | Get32(p + 4); }
inline void Put16(uint8_t* p, uint32_t value) {
  p[0] = static_cast<uint8_t>(value >> 8);
  p[1] = static_cast<uint8_t>(value);
}
inline void Put24(uint8_t* p, uint32_t value) {
  p[0] = static_cast<uint8_t>(value >> 16);
  Put16(p + 1, value);
}
inline void Put32(uint8_t* p, uint32_t value) {
  value = __builtin_bswap32(value);
  std::memcpy(p, &value, sizeof value);
}
inline void Put64(uint8_t* p, uint64_t value) {
  Put32(p, static_cast<uint32_t>(value >> 32));
  Put32(p + 4, static_cast<uint32_t>(value));
}

// SAM single-level LUN: peripheral addressing below 256, flat space above. tgt compares the bytes when it
// resets, so every PDU for a LUN must carry the same.
inline void PutLun(uint8_t* p, uint64_t lun) {
  std::memset(p, 0, 8);
  Put16(p, static_cast<uint32_t>(lun < 256 ? lun : 0x4000 | (lun & 0x3fff)));
}

// Serial number arithmetic (RFC 1982): the numbers wrap.
inline bool SerialLess(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

inline uint32_t Padding(uint32_t length) { return -length & 3; }

}  // namespace lunkeeper::iscsi
