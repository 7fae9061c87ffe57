#pragma once
// Finds out what the LUN is, after each login and before any request: asks the questions of scsi.h one after
// the other, and then says whether it is the LUN that it has to be, in the state that it has to be in.
//
// One thread; nothing allocates. All arguments outlive it.

#include <array>
#include <optional>

#include "devices/iscsi/initiator_session.h"
#include "devices/iscsi/lun.h"
#include "devices/iscsi/reason.h"
#include "devices/iscsi/scsi.h"

namespace lunkeeper::iscsi {

class LunIdentification {
 public:
  enum class Progress {
    kAskNow,    // the next question, or the same once more
    kAskLater,  // the same after a pause: the LUN is not ready to answer
    kComplete,  // all is known
    kFailed,    // this session is of no use
  };

  LunIdentification(const LunOptions& options, LunState* state, InitiatorSession* session)
      : options_(options), state_(state), session_(session) {}

  // Forgets the answers of an earlier session. `response`: of the LUN reset (RFC 7143, 11.6.1). Why this
  // session is of no use, where the LUN was not reset, with `reason`; kNone: another one may be.
  std::optional<LunFailure> Restart(uint8_t response, Reason& reason);
  // Sends the question that is due, as a task without an owner. False: the target takes no commands.
  bool SendQuestion();
  // The task is done. Sets `reason` where this fails.
  Progress TakeReply(const Task& task, Reason& reason);

  // Once complete: kNone if the volume may be served from here, else why never again, with `reason`.
  LunFailure CheckIdentity(Reason& reason) const;
  // Tells the state what the LUN is, and at which portal; before it is healthy, so that a reader who sees
  // that may rely on all of it.
  void PublishFacts(const char* portal);
  const LunFacts& facts() const { return facts_; }

 private:
  void PublishPath(const char* portal);
  Progress AskAgain(Progress how, Reason& reason);

  const LunOptions& options_;
  LunState* const state_;
  InitiatorSession* const session_;
  Question question_ = Question::kReady;
  int retries_ = 0;
  LunFacts facts_;
  alignas(8) std::array<char, kMaxAnswer + 1> answer_;
};

}  // namespace lunkeeper::iscsi
