#pragma once
// The headers of the PDUs that an initiator sends (RFC 7143, section 11). Pure functions.

#include <cstdint>

#include "devices/iscsi/pdu.h"
#include "devices/iscsi/sequence_numbers.h"
#include "devices/iscsi/task.h"

namespace lunkeeper::iscsi {

// Tags of requests that are no task; no task has them, since there are fewer than 0xfff0 slots.
inline constexpr uint32_t kPingTag = 0xfffffff0;
inline constexpr uint32_t kResetTag = 0xfffffff1;
inline constexpr uint32_t kLogoutTag = 0xfffffff2;
inline constexpr uint32_t kLoginTag = 0xfffffff3;

// SCSI Command. `final`: no unsolicited data follow.
Header CommandHeader(const Task& task, uint64_t lun, bool final, const SequenceNumbers& numbers);
// SCSI Data-Out, the next `length` bytes of the burst under way. Counts the task's DataSN.
Header DataOutHeader(Task& task, uint64_t lun, uint32_t length, const SequenceNumbers& numbers);

// Requests that the target carries out at once (immediate delivery); their numbers are filled in when they
// are sent (SetNumbers).
Header NopOutHeader(uint32_t tag);
Header PingAnswerHeader(const uint8_t* ping);  // of the target's ping
Header LoginHeader(uint8_t flags, uint64_t lun);
Header LunResetHeader(uint64_t lun);
Header LogoutHeader();
void SetNumbers(const SequenceNumbers& numbers, Header& header);

}  // namespace lunkeeper::iscsi
