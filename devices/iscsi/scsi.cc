// Two halves: commands for requests, with what their outcome means, and the questions at a login, with what
// the answers mean. Numbers are those of SPC-4 and SBC-3. A LUN may be one that is not ours, so nothing of an
// answer is used beyond its length, a number that makes no sense for a disk refuses the LUN, and what is
// missing counts as the careful choice (a write cache is there, unmapped blocks do not read as zeroes).

#include "devices/iscsi/scsi.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "devices/cache_ids.h"
#include "devices/iscsi/pdu.h"
#include "devices/iscsi/scsi_codes.h"

namespace lunkeeper::iscsi {
namespace {

enum OperationCode : uint8_t {
  kTestUnitReady = 0x00,
  kInquiryCode = 0x12,
  kUnmap = 0x42,
  kModeSense10 = 0x5a,
  kRead16 = 0x88,
  kWrite16 = 0x8a,
  kSynchronizeCache16 = 0x91,
  kWriteSame16 = 0x93,
  kServiceActionIn16 = 0x9e,
};
constexpr uint8_t kReadCapacity16 = 0x10;  // service action

// Of our own: one command is short enough to be answered well within the time-out, and its lengths fit the
// CDB (tgt counts the bytes of an UNMAP in 32 bits, and writes the blocks of a WRITE SAME one by one).
constexpr uint64_t kMaxTransferBytes = 4 << 20, kMaxUnmapBytes = 1 << 30, kMaxWriteSameBytes = 32 << 20;

constexpr uint32_t kMaxBlockSize = 4096;
alignas(64) char zero_block[kMaxBlockSize];  // never written; not const since iovec is not

// Whether a WRITE SAME for `op` is to unmap. tgt 1.0.85 answers every UNMAP with an error (while it carries
// it out), so where both ways are offered this one is taken.
bool UnmapsByWriteSame(LunOp op, const LunFacts& facts) {
  return facts.write_same_unmap && (op == LunOp::kDiscard || facts.reads_zeroes);
}

// The most bytes that one command may do: the LUN's limit from its block limits page, or ours. 0 blocks there
// means "no limit" (SBC-3, 6.5.3).
uint64_t LimitOf(LunOp op, const LunFacts& facts) {
  const auto smaller = [&facts](uint64_t ours, uint64_t blocks) {
    return blocks == 0 || blocks > ours / facts.block_size ? ours : blocks * facts.block_size;
  };
  switch (op) {
    case LunOp::kRead:
    case LunOp::kWrite:
      return smaller(kMaxTransferBytes, facts.max_transfer);
    case LunOp::kDiscard:
    case LunOp::kWriteZeroes:
      if (op == LunOp::kDiscard && !facts.write_same_unmap) return smaller(kMaxUnmapBytes, facts.max_unmap);
      return smaller(UnmapsByWriteSame(op, facts) ? kMaxUnmapBytes : kMaxWriteSameBytes,
                     facts.max_write_same);
    default:
      return 0;
  }
}

// READ(16), WRITE(16) and WRITE SAME(16) have address and length at the same places.
void PutBlocks(Task& task, uint64_t lba, uint64_t blocks) {
  Put64(&task.cdb[2], lba);
  Put32(&task.cdb[10], static_cast<uint32_t>(blocks));
}

void BuildUnmap(uint64_t lba, uint64_t blocks, Task& task) {
  // One block descriptor after the header of 8 bytes (SBC-3, table 104); both lengths leave themselves out.
  auto* list = reinterpret_cast<uint8_t*>(task.parameters.data());
  std::memset(list, 0, task.parameters.size());
  Put16(list, 22);
  Put16(list + 2, 16);
  Put64(list + 8, lba);
  Put32(list + 16, static_cast<uint32_t>(blocks));
  task.cdb[0] = kUnmap;
  Put16(&task.cdb[7], static_cast<uint32_t>(task.parameters.size()));
  task.direction = Direction::kOut;
  task.data = task.parameters.data();
  task.length = static_cast<uint32_t>(task.parameters.size());
}

// NOT READY of a port that does not serve the LUN now (SPC-4, 5.15.2.4: asymmetric access states). While the
// array is between two states (0Ah), the port may be the one that serves it afterwards.
bool IsPassive(const Task& task) {
  constexpr uint8_t kNotAccessible = 0x04, kStandby = 0x0b, kUnavailable = 0x0c;
  return task.asc == kNotAccessible && (task.ascq == kStandby || task.ascq == kUnavailable);
}

CommandOutcome EvaluateSense(const Task& task, LunOp op) {
  constexpr uint8_t kInvalidOpcode = 0x20, kInvalidField = 0x24, kNoSuchLun = 0x25;
  constexpr uint8_t kSpaceAllocationFailed = 0x27;
  if (task.deferred) return {NextStep::kAgain};
  // A unit attention tells of the past (a reset, a new size) and ABORTED COMMAND of a command that was
  // dropped: in both the command was not carried out, and all commands here may be repeated.
  switch (task.sense_key) {
    case kRecovered:
      return {NextStep::kDone};
    case kUnitAttention:
    case kAbortedCommand:
      return {NextStep::kAgain};
    case kNotReady:
      return {IsPassive(task) ? NextStep::kElsewhere : NextStep::kNotReady};
    case kDataProtect:
      return {NextStep::kFailed, task.asc == kSpaceAllocationFailed && task.ascq == 7 ? ENOSPC : EROFS};
    case kIllegalRequest:
      if (task.asc == kNoSuchLun) return {NextStep::kElsewhere};
      // For these two the kernel has another way when it hears EOPNOTSUPP; an EIO would fail the file system.
      if (op != LunOp::kDiscard && op != LunOp::kWriteZeroes) return {NextStep::kFailed, EIO};
      return {NextStep::kFailed, task.asc == kInvalidOpcode || task.asc == kInvalidField ? EOPNOTSUPP : EIO};
    default:
      return {NextStep::kBroken, EIO};
  }
}

// INQUIRY's texts are padded with blanks (SPC-4, 4.4.1); some targets pad with zeros.
void CopyTrimmed(const char* from, size_t length, char* to, size_t capacity) {
  while (length > 0 && (from[length - 1] == ' ' || from[length - 1] == '\0')) --length;
  while (length > 0 && *from == ' ') {
    ++from;
    --length;
  }
  length = std::min(length, capacity - 1);
  std::memcpy(to, from, length);
  to[length] = '\0';
}

// A page of INQUIRY says how long it is; what was not sent counts as zero.
struct AnswerBytes {
  explicit AnswerBytes(const Task& task)
      : bytes(reinterpret_cast<const uint8_t*>(task.data)), size(task.transferred) {}
  uint64_t NumberAt(size_t at, size_t width) const {
    uint64_t value = 0;
    for (size_t i = at; i < at + width; ++i) value = value << 8 | (i < size ? bytes[i] : 0u);
    return value;
  }
  const uint8_t* bytes;
  size_t size;
};

// Page 80h. Our array sets it to the volume's id, which is how another volume behind this target is noticed.
void TakeSerial(const AnswerBytes& page, LunFacts& facts) {
  const size_t length = std::min<size_t>(page.NumberAt(2, 2), page.size - 4);
  CopyTrimmed(reinterpret_cast<const char*>(page.bytes) + 4, length, facts.serial, sizeof facts.serial);
}

// Page B0h: a LUN with fewer fields sends a shorter page, and what is missing reads as 0, "no limit".
void TakeBlockLimits(const AnswerBytes& page, LunFacts& facts) {
  constexpr uint64_t kAnyNumber = 0xffffffff;
  facts.max_transfer = static_cast<uint32_t>(page.NumberAt(8, 4));
  const auto max_unmap = static_cast<uint32_t>(page.NumberAt(20, 4));
  facts.max_unmap = max_unmap == kAnyNumber ? 0 : max_unmap;
  facts.unmap_granularity = static_cast<uint32_t>(page.NumberAt(28, 4));
  facts.max_write_same = page.NumberAt(36, 8);
}

// READ CAPACITY(16): the last block, not the number of blocks; LBPRZ says that unmapped blocks read as
// zeroes.
bool TakeCapacity(const AnswerBytes& page, LunFacts& facts) {
  const uint64_t last = page.NumberAt(0, 8), block_size = page.NumberAt(8, 4);
  if (block_size < 512 || block_size > kMaxBlockSize || (block_size & (block_size - 1)) != 0) return false;
  if (last >= INT64_MAX / block_size) return false;  // offsets in bytes have to fit off_t
  facts.blocks = last + 1;
  facts.block_size = static_cast<uint32_t>(block_size);
  if ((page.NumberAt(14, 1) & 0x40) != 0) facts.reads_zeroes = true;
  return true;
}

// MODE SENSE(10): a header of 8 bytes, block descriptors, then the page.
void TakeCaching(const AnswerBytes& page, LunFacts& facts) {
  facts.write_protected = (page.NumberAt(3, 1) & 0x80) != 0;
  facts.takes_fua = (page.NumberAt(3, 1) & 0x10) != 0;
  const size_t at = 8 + page.NumberAt(6, 2);
  if ((page.NumberAt(at, 1) & 0x3f) != 0x08 || at + 3 > page.size) return;
  facts.write_cache = (page.NumberAt(at + 2, 1) & 0x04) != 0;
}

// Page 0: the standard answer.
void BuildInquiry(uint8_t page, Task& task) {
  task.cdb[0] = kInquiryCode;
  task.cdb[1] = page != 0;
  task.cdb[2] = page;
  Put16(&task.cdb[3], kMaxAnswer);
}

}  // namespace

bool LunFacts::write_through() const { return write_cache && std::strcmp(boot_id, kUnknownCache) == 0; }

uint32_t CommandLength(const LunRequest& request, const LunFacts& facts) {
  const uint64_t left = request.length - request.internal.position;
  return static_cast<uint32_t>(std::min(left, LimitOf(request.op, facts)));
}

void BuildFlush(Task& task) {
  task.cdb.fill(0);
  task.cdb[0] = kSynchronizeCache16;  // 0 blocks from 0: all of them
  task.direction = Direction::kNone;
  task.data = nullptr;
  task.length = 0;
}

void BuildCommand(const LunRequest& request, const LunFacts& facts, uint32_t length, Task& task) {
  const uint64_t lba = (request.offset + request.internal.position) / (facts.block_size);
  const uint64_t blocks = length / facts.block_size;
  const bool fua = request.fua || (facts.write_through() && facts.takes_fua);
  task.cdb.fill(0);
  task.direction = Direction::kNone;
  task.data = nullptr;
  task.length = 0;
  switch (request.op) {
    case LunOp::kRead:
    case LunOp::kWrite:
      task.cdb[0] = request.op == LunOp::kRead ? kRead16 : kWrite16;
      task.cdb[1] = request.op == LunOp::kWrite && fua ? 0x08 : 0;  // FUA
      PutBlocks(task, lba, blocks);
      task.direction = request.op == LunOp::kRead ? Direction::kIn : Direction::kOut;
      task.data = request.data + request.internal.position;
      task.length = length;
      break;
    case LunOp::kFlush:
      return BuildFlush(task);
    case LunOp::kDiscard:
    case LunOp::kWriteZeroes:
      if (request.op == LunOp::kDiscard && !facts.write_same_unmap) return BuildUnmap(lba, blocks, task);
      task.cdb[0] = kWriteSame16;
      task.cdb[1] = UnmapsByWriteSame(request.op, facts) ? 0x08 : 0;  // UNMAP
      PutBlocks(task, lba, blocks);
      task.direction = Direction::kOut;
      task.data = zero_block;
      task.length = facts.block_size;
      break;
    case LunOp::kReadCapacity:
      break;  // a question, not a command
  }
}

bool TellsOfLoss(const Task& task) {
  return task.status == kCheckCondition && task.deferred && task.sense_key != kNoSense &&
         task.sense_key != kRecovered && task.sense_key != kUnitAttention;
}

CommandOutcome EvaluateCommand(const Task& task, LunOp op) {
  if (task.response != 0) return {NextStep::kAgain};  // the target lost it
  switch (task.status) {
    case kGood:
    case kConditionMet:
      break;
    case kCheckCondition: {
      const CommandOutcome outcome = EvaluateSense(task, op);
      if (outcome.next != NextStep::kDone) return outcome;
      break;
    }
    case kBusy:
    case kTaskSetFull:
      return {NextStep::kLater};
    case kTaskAborted:
      return {NextStep::kAgain};
    default:
      return {NextStep::kFailed, EIO};
  }
  // A good status for fewer bytes than asked for would pass off a hole as data.
  const bool whole = task.transferred == task.length || op == LunOp::kReadCapacity;
  return whole ? CommandOutcome{NextStep::kDone} : CommandOutcome{NextStep::kFailed, EIO};
}

void BuildQuestion(Question question, char* answer, Task& task) {
  task.cdb.fill(0);
  task.direction = Direction::kIn;
  task.data = answer;
  task.length = kMaxAnswer;
  switch (question) {
    case Question::kReady:
      task.cdb[0] = kTestUnitReady;
      task.direction = Direction::kNone;
      task.data = nullptr;
      task.length = 0;
      break;
    case Question::kInquiry:
      BuildInquiry(0, task);
      break;
    case Question::kSerial:
      BuildInquiry(0x80, task);
      break;
    case Question::kBlockLimits:
      BuildInquiry(0xb0, task);
      break;
    case Question::kProvisioning:
      BuildInquiry(0xb2, task);
      break;
    case Question::kCapacity:
      task.cdb[0] = kServiceActionIn16;
      task.cdb[1] = kReadCapacity16;
      task.length = 32;
      Put32(&task.cdb[10], task.length);
      break;
    case Question::kCaching:
      task.cdb[0] = kModeSense10;
      task.cdb[1] = 0x08;  // no block descriptors
      task.cdb[2] = 0x08;
      Put16(&task.cdb[7], kMaxAnswer);
      break;
    case Question::kEnd:
      break;
  }
}

bool TakeAnswer(Question question, const Task& task, LunFacts& facts) {
  const AnswerBytes page(task);
  const auto is_page = [&page](uint8_t code) { return page.size >= 4 && page.bytes[1] == code; };
  switch (question) {
    case Question::kReady:
      return true;
    case Question::kInquiry:
      if (page.size < 36 || (page.bytes[0] & 0x1f) != 0) return false;  // not a disk
      CopyTrimmed(reinterpret_cast<const char*>(page.bytes) + 16, 16, facts.boot_id, sizeof facts.boot_id);
      if (!IsCacheId(facts.boot_id)) std::strcpy(facts.boot_id, kUnknownCache);
      return true;
    case Question::kSerial:
      if (!is_page(0x80)) return false;
      TakeSerial(page, facts);
      return true;
    case Question::kBlockLimits:
      if (is_page(0xb0)) TakeBlockLimits(page, facts);
      return true;
    case Question::kProvisioning:
      if (!is_page(0xb2)) return true;
      facts.unmap_command = (page.NumberAt(5, 1) & 0x80) != 0;
      facts.write_same_unmap = (page.NumberAt(5, 1) & 0x40) != 0;
      if ((page.NumberAt(5, 1) & 0x04) != 0) facts.reads_zeroes = true;
      return true;
    case Question::kCapacity:
      return page.size >= 12 && TakeCapacity(page, facts);
    case Question::kCaching:
      TakeCaching(page, facts);
      return true;
    case Question::kEnd:
      return true;
  }
  return false;
}

// A disk without these pages is a plain one: no limits, no thin provisioning, a cache that has to be flushed.
bool IsOptional(Question question) {
  return question == Question::kBlockLimits || question == Question::kProvisioning ||
         question == Question::kCaching;
}

const char* QuestionName(Question question) {
  switch (question) {
    case Question::kReady:
      return "TEST UNIT READY";
    case Question::kInquiry:
      return "INQUIRY";
    case Question::kSerial:
      return "INQUIRY for the serial number";
    case Question::kBlockLimits:
      return "INQUIRY for the block limits";
    case Question::kProvisioning:
      return "INQUIRY for the provisioning";
    case Question::kCapacity:
      return "READ CAPACITY";
    case Question::kCaching:
      return "MODE SENSE for the cache";
    case Question::kEnd:
      break;
  }
  return "";
}

}  // namespace lunkeeper::iscsi
