// The order of the questions (scsi.h) matters at its two ends. TEST UNIT READY comes first, since a LUN
// answers the first commands after a login with unit attentions, and a command without an answer of its own
// can take them. The cache comes last, since MODE SENSE is what simple targets refuse.
//
// What the LUN shows must be what LunState remembers of it, or the volume is not served: a device under a
// mounted file system cannot be exchanged.

#include "devices/iscsi/lun_identification.h"

#include <algorithm>
#include <cstring>
#include <ctime>

#include "devices/cache_ids.h"
#include "devices/iscsi/scsi_codes.h"

namespace lunkeeper::iscsi {
namespace {

// With a pause of 250 ms (iscsi_lun.cc) a LUN has ten seconds to become ready, as after a start of its array.
constexpr int kMostRetries = 40;

// Whether the LUN does not know the question. istgt says so without a reason.
bool IsUnknown(const Task& task) {
  return task.status == kCheckCondition && (task.sense_key == kIllegalRequest || task.sense_key == kNoSense);
}

}  // namespace

std::optional<LunFailure> LunIdentification::Restart(uint8_t response, Reason& reason) {
  constexpr uint8_t kDone = 0, kNotSupported = 5;
  if (response == kNotSupported) {
    reason.Format("the target cannot reset a LUN, without which no command can safely be sent again");
    return LunFailure::kNoReset;
  }
  if (response != kDone) {
    reason.Format("the target refused the reset of the LUN (response %u)", response);
    return LunFailure::kNone;
  }
  facts_ = LunFacts();
  question_ = Question::kReady;
  retries_ = 0;
  return std::nullopt;
}

bool LunIdentification::SendQuestion() {
  Task* task = session_->NewTask();
  if (task == nullptr) return false;
  BuildQuestion(question_, answer_.data(), *task);
  task->owner = nullptr;
  session_->StartTask(task);
  return true;
}

LunIdentification::Progress LunIdentification::TakeReply(const Task& task, Reason& reason) {
  if (TellsOfLoss(task)) state_->lost_writes = true;
  const CommandOutcome outcome = EvaluateCommand(task, LunOp::kReadCapacity);
  if (outcome.next == NextStep::kAgain) return AskAgain(Progress::kAskNow, reason);
  if (outcome.next == NextStep::kLater || outcome.next == NextStep::kNotReady)
    return AskAgain(Progress::kAskLater, reason);
  if (outcome.next == NextStep::kDone) {
    if (!TakeAnswer(question_, task, facts_)) {
      reason.Format("%s: the answer makes no sense for a disk", QuestionName(question_));
      return Progress::kFailed;
    }
  } else if (!IsUnknown(task) || !IsOptional(question_)) {
    reason.Format("%s was refused (status %02x, sense %x/%02x/%02x)", QuestionName(question_), task.status,
                  task.sense_key, task.asc, task.ascq);
    return Progress::kFailed;
  }
  question_ = static_cast<Question>(static_cast<uint8_t>(question_) + 1);
  return question_ == Question::kEnd ? Progress::kComplete : Progress::kAskNow;
}

LunIdentification::Progress LunIdentification::AskAgain(Progress how, Reason& reason) {
  if (++retries_ > kMostRetries) {
    reason.Format("the LUN does not become ready");
    return Progress::kFailed;
  }
  return how;
}

// What the state says was true at the last login, perhaps of a process that has died since. The order is that
// of how much each says: a wrong serial explains a wrong size.
LunFailure LunIdentification::CheckIdentity(Reason& reason) const {
  if (!options_.serial.empty() && options_.serial != facts_.serial) {
    reason.Format("the LUN's serial is %.60s, not %.60s: another volume", facts_.serial,
                  options_.serial.c_str());
    return LunFailure::kOtherLun;
  }
  if (state_->block_size != 0 && state_->block_size != facts_.block_size) {
    reason.Format("the LUN's block size has changed");
    return LunFailure::kOtherLun;
  }
  if (facts_.size_bytes() < std::max<uint64_t>(options_.size_bytes, state_->size_bytes)) {
    reason.Format("the LUN has %llu bytes, fewer than it must have",
                  static_cast<unsigned long long>(facts_.size_bytes()));
    return LunFailure::kOtherLun;
  }
  // Another boot id: the write cache of the old boot is gone. Without unflushed writes nothing was in it that
  // we were promised; with some, a later flush would say GOOD for data that is lost.
  const bool rebooted = state_->boot_id[0] != '\0' && std::strcmp(state_->boot_id, facts_.boot_id) != 0;
  if (rebooted && state_->unflushed() > 0) {
    reason.Format("storage host restarted, or its disk failed, before %llu acknowledged writes were flushed",
                  static_cast<unsigned long long>(state_->unflushed()));
    return LunFailure::kHostRestarted;
  }
  return LunFailure::kNone;
}

// The first login is no move, nor is one after those of a worker that told no portal.
void LunIdentification::PublishPath(const char* portal) {
  if (state_->portal.Holds(portal)) return;
  if (!state_->portal.Holds("")) ++state_->path_moves;
  state_->portal_since = std::time(nullptr);
  state_->portal.Store(portal);
}

void LunIdentification::PublishFacts(const char* portal) {
  std::memcpy(state_->boot_id, facts_.boot_id, sizeof state_->boot_id);
  state_->block_size = facts_.block_size;
  state_->size_bytes = facts_.size_bytes();
  state_->write_cache = facts_.write_cache;
  state_->unmap = facts_.can_unmap();
  state_->unmap_zeroes = facts_.unmap_zeroes();
  // Until the LUN refuses one. Without a write cache tgt takes each sector of it to its disk by itself.
  state_->write_same =
      std::strcmp(facts_.boot_id, kNothingCached) != 0 && (facts_.write_cache || facts_.can_unmap());
  if (state_->logins == 0) state_->first_login = std::time(nullptr);
  ++state_->logins;
  PublishPath(portal);
}

}  // namespace lunkeeper::iscsi
