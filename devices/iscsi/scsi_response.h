#pragma once
// What a SCSI Response PDU says of a task (RFC 7143, 11.4; sense data: SPC-4, 4.5). Pure.

#include "devices/iscsi/pdu_reader.h"
#include "devices/iscsi/task.h"

namespace lunkeeper::iscsi {

// Fills the result of `task`: response, status, sense, and how much was transferred.
void TakeResponse(const PduReader::Pdu& pdu, Task& task);
// Whether the target says that it has carried the whole command out, perhaps with some trouble.
bool IsSuccess(const Task& task);
// The sense data alone, as a response and an asynchronous message carry them.
void TakeSense(const PduReader::Pdu& pdu, Task& task);

}  // namespace lunkeeper::iscsi
