// Offsets and flags are those of pdu.h. Fields that are not set are zero, which in these PDUs always means
// "none" or "reserved".

#include "devices/iscsi/pdu_headers.h"

#include <algorithm>
#include <cstring>

namespace lunkeeper::iscsi {
namespace {

// Of a LUN the same for ever: a new login then ends the remains of the session before it (RFC 7143, 6.3.5),
// and nothing of the sessions to the other LUNs of that target. The initiator's name is a node's, so nobody
// else has it. The last two bytes are the LUN's number.
constexpr std::array<uint8_t, 6> kIsid = {0x80, 0x4c, 0x4b, 0x00, 0x00, 0x00};
constexpr size_t kIsidQualifierAt = 4;

// Immediate delivery: such a request takes no command number and no place in the target's window, so it can
// be sent when that is full.
Header ImmediateHeader(Opcode opcode, uint32_t tag) {
  Header header{};
  header[0] = opcode | kImmediate;
  header[1] = kFinal;
  Put32(header.data() + kTagAt, tag);
  Put32(header.data() + kTargetTagAt, kNoTag);
  return header;
}

}  // namespace

Header CommandHeader(const Task& task, uint64_t lun, bool final, const SequenceNumbers& numbers) {
  Header header{};
  uint8_t flags = kAttributeSimple;
  if (final) flags |= kFinal;
  if (task.direction == Direction::kIn) flags |= kCommandRead;
  if (task.direction == Direction::kOut) flags |= kCommandWrite;
  header[0] = kScsiCommand;
  header[1] = flags;
  PutLun(header.data() + kLunAt, lun);
  Put32(header.data() + kTagAt, task.internal.tag);
  Put32(header.data() + kExpectedLengthAt, task.length);
  SetNumbers(numbers, header);
  std::memcpy(header.data() + kCdbAt, task.cdb.data(), task.cdb.size());
  return header;
}

Header DataOutHeader(Task& task, uint64_t lun, uint32_t length, const SequenceNumbers& numbers) {
  Header header{};
  auto& state = task.internal;
  header[0] = kDataOut;
  header[1] = length == state.send_left ? kFinal : 0;
  PutLun(header.data() + kLunAt, lun);
  Put32(header.data() + kTagAt, state.tag);
  Put32(header.data() + kTargetTagAt, state.target_tag);
  Put32(header.data() + kExpStatSnAt, numbers.exp_stat_sn());
  Put32(header.data() + kDataSnAt, state.data_sn++);
  Put32(header.data() + kBufferOffsetAt, state.send_offset);
  return header;
}

Header NopOutHeader(uint32_t tag) { return ImmediateHeader(kNopOut, tag); }

Header PingAnswerHeader(const uint8_t* ping) {
  Header answer = NopOutHeader(kNoTag);
  std::memcpy(answer.data() + kLunAt, ping + kLunAt, 8);
  std::memcpy(answer.data() + kTargetTagAt, ping + kTargetTagAt, 4);
  return answer;
}

Header LoginHeader(uint8_t flags, uint64_t lun) {
  Header header = ImmediateHeader(kLoginRequest, kLoginTag);
  header[1] = flags;
  std::copy(kIsid.begin(), kIsid.end(), header.begin() + kLunAt);
  Put16(header.data() + kLunAt + kIsidQualifierAt, static_cast<uint32_t>(lun));
  Put32(header.data() + kTargetTagAt, 0);  // the connection's id
  return header;
}

Header LunResetHeader(uint64_t lun) {
  Header header = ImmediateHeader(kTaskManagement, kResetTag);
  header[1] = kFinal | kLogicalUnitReset;
  PutLun(header.data() + kLunAt, lun);
  return header;
}

Header LogoutHeader() {
  Header header = ImmediateHeader(kLogoutRequest, kLogoutTag);
  Put32(header.data() + kTargetTagAt, 0);  // reason 0: the session ends
  return header;
}

void SetNumbers(const SequenceNumbers& numbers, Header& header) {
  Put32(header.data() + kCmdSnAt, numbers.cmd_sn());
  Put32(header.data() + kExpStatSnAt, numbers.exp_stat_sn());
}

}  // namespace lunkeeper::iscsi
