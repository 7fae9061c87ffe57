#pragma once
// What a SCSI Response PDU says of a task (RFC 7143, 11.4; sense data: SPC-4, 4.5). Pure.

#include "devices/iscsi/pdu_reader.h"
#include "devices/iscsi/task.h"

namespace lunkeeper::iscsi {

// Fills the result of `task`: response, status, sense, and how much was transferred.
void TakeResponse(const PduReader::Pdu& pdu, Task& task);

}  // namespace lunkeeper::iscsi
