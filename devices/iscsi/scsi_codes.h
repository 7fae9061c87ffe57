#pragma once
// The status codes (SAM-5, 5.3.1) and sense keys (SPC-4, 4.5.6) of SCSI that this initiator tells apart.

#include <cstdint>

namespace lunkeeper::iscsi {

enum ScsiStatus : uint8_t {
  kGood = 0x00,
  kCheckCondition = 0x02,
  kConditionMet = 0x04,
  kBusy = 0x08,
  kReservationConflict = 0x18,
  kTaskSetFull = 0x28,
  kTaskAborted = 0x40,
};

enum SenseKey : uint8_t {
  kNoSense = 0x0,
  kRecovered = 0x1,
  kNotReady = 0x2,
  kIllegalRequest = 0x5,
  kUnitAttention = 0x6,
  kDataProtect = 0x7,
  kAbortedCommand = 0xb,
};

}  // namespace lunkeeper::iscsi
