#include "devices/iscsi/async_message.h"

#include "devices/iscsi/scsi.h"
#include "devices/iscsi/scsi_response.h"
#include "devices/iscsi/task.h"

namespace lunkeeper::iscsi {
namespace {

constexpr size_t kEventAt = 36, kTimeToWaitAt = 40, kTimeLimitAt = 42;

// Sense data of no command. What is of the present there comes with the next command too; a deferred error
// comes once.
bool TellsOfLostWrite(const PduReader::Pdu& pdu) {
  Task nobody;
  nobody.status = 2;  // CHECK CONDITION, which sense data are of
  TakeSense(pdu, nobody);
  return TellsOfLoss(nobody);
}

}  // namespace

AsyncMessage ReadAsyncMessage(const PduReader::Pdu& pdu) {
  using Kind = AsyncMessage::Kind;
  const auto seconds_at = [&pdu](size_t at) { return std::chrono::seconds(Get16(pdu.header + at)); };
  switch (pdu.header[kEventAt]) {
    case kScsiEvent:
      return {TellsOfLostWrite(pdu) ? Kind::kLostWrite : Kind::kNews};
    case kVendorEvent:
      return {Kind::kNews};
    case kLogoutRequested:
    case kNegotiationRequested:  // which a new login is, too
      return {Kind::kLogout, seconds_at(kTimeLimitAt)};
    default:
      return {Kind::kEnd, seconds_at(kTimeToWaitAt)};
  }
}

}  // namespace lunkeeper::iscsi
