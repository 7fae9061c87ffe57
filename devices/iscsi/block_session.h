#pragma once
// One iSCSI session with one LUN for a thread that may wait: whole blocks, one command at a time, such as a
// node's heartbeats. It moves the bytes of an InitiatorSession until the answer is there. Volumes use Lun
// (lun.h), which never waits and goes on after a lost connection. Here a lost connection ends the session.
//
// Nothing is ever sent twice, but for what a LUN answers with a unit attention: that tells of the past, and
// the command was not carried out.
//
// A login ends an earlier session of the same initiator with the same LUN, such as one that a killed process
// left behind (RFC 7143, 6.3.5): the ISID of a LUN is always the same (pdu_headers.cc).
//
// Blocking: each call takes at most `timeout`, by the steady clock, whatever the target does. Not
// thread-safe: one thread at a time. Ownership: the session owns its connection; the destructor drops it
// without a logout. Data belong to the caller, and are not touched after the call.
// Failure:
//   UNAVAILABLE          the connection cannot be made or was lost, the target broke the protocol, or it
//                        takes no login now, or only elsewhere: another portal may be of use
//   DEADLINE_EXCEEDED    the target did not answer in time
//   PERMISSION_DENIED    the target refused the login: no such target for us, or a wrong secret
//   FAILED_PRECONDITION  another initiator's reservation forbids it
//   INTERNAL             the LUN answered with any other error, or too little; the message has its sense data
//   INVALID_ARGUMENT     nothing was sent: see at each call
// After UNAVAILABLE or DEADLINE_EXCEEDED the session is over: each later call fails, and the caller makes a
// new session.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/steady_deadline.h"
#include "devices/iscsi/initiator_session.h"
#include "devices/iscsi/lun_connection.h"
#include "devices/iscsi/scsi.h"
#include "devices/types.h"

namespace lunkeeper::iscsi {

class BlockSession final : private SessionHandler {
 public:
  static constexpr size_t kMaxTransferBytes = 1 << 20;

  // Connects to the connection's own portal, logs in, and asks the LUN for its size. INVALID_ARGUMENT: the
  // portal is no numeric address.
  static absl::StatusOr<std::unique_ptr<BlockSession>> Login(const Connection& connection,
                                                             absl::Duration timeout);
  BlockSession(const BlockSession&) = delete;
  BlockSession& operator=(const BlockSession&) = delete;

  // Whole blocks from block `lba` on. INVALID_ARGUMENT: not whole blocks, more than kMaxTransferBytes, or not
  // within the LUN. A read that failed may have changed `data`.
  absl::Status ReadBlocks(uint64_t lba, std::span<char> data);
  absl::Status WriteBlocks(uint64_t lba, std::span<const char> data);

 private:
  using Build = std::function<void(Task&)>;

  BlockSession(const Connection& connection, absl::Duration timeout);

  void OnLoggedIn() override {}
  void OnTaskDone(Task& task) override;
  void OnReset(uint8_t) override {}  // never asked for, nor is a logout
  void OnLoggedOut() override {}
  void OnLogoutWanted(std::chrono::seconds within) override;
  void OnLostWrite() override;

  absl::Status OpenConnection(const SteadyDeadline& deadline);
  absl::Status SendLogin(const SteadyDeadline& deadline);
  absl::Status ReadCapacity(const SteadyDeadline& deadline);
  absl::Status Transfer(const char* what, LunOp op, uint64_t lba, std::span<char> data);
  // Sends the command that `build` makes, again after a unit attention. OK: `answer_` is a success.
  absl::Status Execute(const char* what, const SteadyDeadline& deadline, const Build& build);
  absl::Status ExecuteOnce(const char* what, const SteadyDeadline& deadline, const Build& build);
  absl::Status ResultOfAnswer(const char* what) const;
  // Serves the connection until `done`; ends the session where that comes to nothing.
  absl::Status MoveBytesUntil(const char* what, const SteadyDeadline& deadline,
                              const std::function<bool()>& done);
  absl::Status AwaitSocket(const char* what, short events, const SteadyDeadline& deadline);
  absl::Status EndBroken(const char* what);
  absl::Status EndSession(absl::StatusCode code, const char* what, const char* why);
  absl::Status MakeError(absl::StatusCode code, const char* what, const std::string& why) const;

  const Connection connection_;  // with one portal
  const absl::Duration timeout_;
  InitiatorSession session_;
  LunConnection socket_;  // closed once the session is over
  LunFacts facts_;        // the size alone
  bool answered_ = false;
  Task answer_;  // the last command, as the target left it
};

}  // namespace lunkeeper::iscsi
