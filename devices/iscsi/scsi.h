#pragma once
// SCSI for a disk: the commands that are sent, what their outcome means, and what the LUN says of itself
// (SPC-4, SBC-3). Pure functions on plain data.

#include <cstdint>

#include "devices/iscsi/lun.h"
#include "devices/iscsi/task.h"

namespace lunkeeper::iscsi {

// What the LUN says of itself, gathered at each login. Lengths in blocks unless they say bytes; 0: no limit.
struct LunFacts {
  // INQUIRY's product id, which our array sets to the storage host's boot id; another's: kUnknownCache.
  char boot_id[17] = "";
  char serial[256] = "";  // page 80h, without surrounding blanks
  uint64_t blocks = 0;
  uint32_t block_size = 0;  // bytes
  bool write_cache = true;  // until it says otherwise: to flush in vain is safe
  bool write_protected = false;
  bool takes_fua = false;         // FUA of a write counts (DPOFUA)
  bool reads_zeroes = false;      // unmapped blocks do
  bool unmap_command = false;     // UNMAP works
  bool write_same_unmap = false;  // WRITE SAME may unmap
  uint32_t max_transfer = 0;
  uint32_t max_unmap = 0;
  uint32_t unmap_granularity = 0;
  uint64_t max_write_same = 0;

  uint64_t size_bytes() const { return blocks * block_size; }
  // WRITE SAME is the better of the two ways: it zeroes what is no whole granule, which UNMAP leaves out.
  // Nothing that was acknowledged may stay in its cache: nobody would notice the loss (cache_ids.h).
  bool write_through() const;
  bool can_unmap() const { return write_same_unmap || unmap_command; }
  bool unmap_zeroes() const {
    return reads_zeroes && (write_same_unmap || (unmap_command && unmap_granularity <= 1));
  }
};

// How much of `request`, from its position on, one command may do; bytes.
uint32_t CommandLength(const LunRequest& request, const LunFacts& facts);
// Makes `task` that command.
void BuildCommand(const LunRequest& request, const LunFacts& facts, uint32_t length, Task& task);
// Makes `task` a flush of all that the LUN has.
void BuildFlush(Task& task);

// What to do about a command that the target has answered.
enum class NextStep {
  kDone,
  kAgain,      // at once: the LUN only wanted to tell something, or lost the command
  kLater,      // it is busy
  kNotReady,   // it may be soon, or be so at another portal
  kElsewhere,  // not at this portal, perhaps at another: its gateway stands by, or has no such LUN (now)
  kFailed,     // with an errno
  kBroken,     // with EIO: the medium or the target failed
};
struct CommandOutcome {
  NextStep next;
  int error = 0;
};
CommandOutcome EvaluateCommand(const Task& task, LunOp op);
// Whether the answer says that something was lost which had been acknowledged before (SPC-4, 4.5.7).
bool TellsOfLoss(const Task& task);

// The questions at a login, in order.
enum class Question : uint8_t {
  kReady,
  kInquiry,
  kSerial,
  kBlockLimits,
  kProvisioning,
  kCapacity,
  kCaching,
  kEnd,
};
// The longest answer to any of them.
inline constexpr uint32_t kMaxAnswer = 255;
// Makes `task` the question, its answer to be put at `answer` (kMaxAnswer bytes).
void BuildQuestion(Question question, char* answer, Task& task);
// Takes what the answer says; false if it is too short to mean anything.
bool TakeAnswer(Question question, const Task& task, LunFacts& facts);
// Whether a LUN may leave the question unanswered (ILLEGAL REQUEST); the facts' defaults then hold.
bool IsOptional(Question question);
const char* QuestionName(Question question);

}  // namespace lunkeeper::iscsi
