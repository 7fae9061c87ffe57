#pragma once
// One iSCSI session with one LUN, through the library libiscsi: an initiator that is not ours, for tests of
// arrays and of our own initiator. It has what tests ask of a LUN besides I/O: identity, size and persistent
// reservations (persistent_reservation.h).
//
// For tests only, against targets of their own: libiscsi 1.19 trusts what it receives, so that any target can
// end or hang the process (docs/architecture.md).
//
// It does not log in again by itself, and nothing is ever sent twice: a lost connection ends the session.
//
// Blocking: each answer is waited for at most `timeout`. Not thread-safe: one thread at a time. Ownership: a
// session owns its connection; the destructor drops it without a logout. A process that logs in ignores
// SIGPIPE from then on, since libiscsi writes to sockets that the target has closed.
// Failure:
//   UNAVAILABLE          the connection cannot be made or was lost
//   DEADLINE_EXCEEDED    the target did not answer in time
//   PERMISSION_DENIED    the target refused the login: no such target for us, or a wrong secret
//   FAILED_PRECONDITION  another initiator's reservation forbids it
//   INTERNAL             the LUN answered with any other error; the message has its sense data
// After UNAVAILABLE or DEADLINE_EXCEEDED the session is over: each later call fails, and the caller makes a
// new session.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/types.h"

struct iscsi_context;

namespace lunkeeper {

struct LunIdentity {
  std::string vendor;   // INQUIRY, trailing blanks removed
  std::string product;  // likewise; our own array puts its host's boot id here
  std::string serial;   // INQUIRY, page 80h
};

struct LunCapacity {
  uint64_t blocks = 0;
  uint32_t block_bytes = 0;
};

class LibiscsiSession final {
 public:
  static constexpr size_t kMaxTransferBytes = 1 << 20;

  // A SCSI command with its data: `out` for the LUN, or room for what it answers in `in`.
  struct Command {
    const char* what;  // for error texts
    std::span<const uint8_t> cdb;
    std::span<const char> out = {};
    std::span<char> in = {};
  };

  // Connects, logs in with CHAP (without, when the user is empty), and waits until the LUN takes commands.
  static absl::StatusOr<std::unique_ptr<LibiscsiSession>> Login(const Connection& connection,
                                                                absl::Duration timeout = absl::Seconds(5));
  ~LibiscsiSession();
  LibiscsiSession(const LibiscsiSession&) = delete;
  LibiscsiSession& operator=(const LibiscsiSession&) = delete;

  absl::StatusOr<LunIdentity> ReadIdentity();
  absl::StatusOr<LunCapacity> ReadCapacity();
  // Whole blocks from block `lba` on, at most kMaxTransferBytes. INVALID_ARGUMENT: not whole blocks, or too
  // many.
  absl::Status ReadBlocks(uint64_t lba, std::span<char> data);
  absl::Status WriteBlocks(uint64_t lba, std::span<const char> data);

  // Sends the command and waits; again when the LUN answers with a unit attention, which tells of the past.
  // Returns the number of bytes put into command.in.
  absl::StatusOr<size_t> Execute(const Command& command);
  // A failure in the words of this session: which target, doing what, and why.
  absl::Status MakeError(absl::StatusCode code, const char* what, const std::string& why) const;

 private:
  struct ContextDeleter {
    void operator()(iscsi_context* context) const;
  };
  // What libiscsi's callback leaves behind; libiscsi points to it until it has called back or is gone.
  struct Answer;

  LibiscsiSession(const Connection& connection, absl::Duration timeout);

  absl::Status OpenConnection(absl::Time deadline);
  absl::Status SendLogin(absl::Time deadline);
  absl::Status DrainUnitAttentions();
  // The CDB of READ(16) or WRITE(16); fails unless `bytes` is whole blocks and not too many.
  absl::StatusOr<std::vector<uint8_t>> TransferCdb(const char* what, uint8_t operation, uint64_t lba,
                                                   size_t bytes);
  absl::StatusOr<size_t> ExecuteOnce(const Command& command, absl::Time deadline, bool* unit_attention);
  // Serves the connection until `answer` is there; drops the session otherwise.
  absl::Status AwaitAnswer(const char* what, Answer& answer, absl::Time deadline);

  const Connection connection_;
  const absl::Duration timeout_;
  std::unique_ptr<iscsi_context, ContextDeleter> context_;  // null once the session is over
  uint32_t block_bytes_ = 0;
};

}  // namespace lunkeeper
