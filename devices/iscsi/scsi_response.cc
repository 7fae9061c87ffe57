// A response carries its sense data as the PDU's data segment: two bytes with their length, then the sense
// itself. Each length is the target's claim, so each is cut to what has really come.

#include "devices/iscsi/scsi_response.h"

#include <algorithm>

#include "devices/iscsi/scsi_codes.h"

namespace lunkeeper::iscsi {
namespace {

// Fixed or descriptor format, each of this command or deferred (SPC-4, 4.5.5). Too short: nothing is known,
// which counts as an error without a reason.
void ParseSense(const uint8_t* sense, uint32_t length, Task& task) {
  if (length < 4) return;
  const uint8_t format = sense[0] & 0x7f;
  task.deferred = format == 0x71 || format == 0x73;
  if (format == 0x72 || format == 0x73) {
    task.sense_key = sense[1] & 0x0f;
    task.asc = sense[2];
    task.ascq = sense[3];
    return;
  }
  task.sense_key = sense[2] & 0x0f;
  if (length < 14) return;
  task.asc = sense[12];
  task.ascq = sense[13];
}

// How much of the task the target says it left out. It is not believed that it did more than all.
void SubtractResidual(const uint8_t* header, Task& task) {
  if ((header[1] & kResidualUnderflow) == 0) return;
  task.transferred -= std::min(task.transferred, Get32(header + kResidualAt));
}

}  // namespace

void TakeResponse(const PduReader::Pdu& pdu, Task& task) {
  task.response = pdu.header[2];
  task.status = pdu.header[3];
  if (task.direction == Direction::kIn) {
    // Counted here, as the data came; the target's own count may be about data that never arrived.
    task.transferred = task.internal.received;
  } else {
    task.transferred = task.length;
    SubtractResidual(pdu.header, task);
  }
  TakeSense(pdu, task);
}

bool IsSuccess(const Task& task) {
  const bool recovered = task.status == kCheckCondition && task.sense_key == kRecovered && !task.deferred;
  return task.response == 0 && (task.status == kGood || task.status == kConditionMet || recovered);
}

void TakeSense(const PduReader::Pdu& pdu, Task& task) {
  if (pdu.length < 2) return;
  const uint32_t sense_length = std::min<uint32_t>(Get16(pdu.data), pdu.length - 2);
  ParseSense(pdu.data + 2, sense_length, task);
}

}  // namespace lunkeeper::iscsi
