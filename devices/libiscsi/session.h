#pragma once
// One iSCSI session with one LUN, through libiscsi: for management (who is there, how large, reservations)
// and for tests. The data path of volumes does not come here (devices/iscsi).
//
// Blocking: every call waits for the target at most IscsiOptions::timeout. Not thread-safe: one thread at a
// time. Ownership: a session owns its connection; the destructor drops it without a logout. A process that
// logs in ignores SIGPIPE from then on: libiscsi writes to sockets that the target has closed. Failure:
//          UNAVAILABLE        the connection cannot be made or was lost
//          DEADLINE_EXCEEDED  the target did not answer in time
//          PERMISSION_DENIED  the target refused the login: no such target for us, or a wrong secret
//          FAILED_PRECONDITION  another initiator's reservation forbids it
//          INTERNAL           the LUN answered with any other error; the message has its sense data
// After UNAVAILABLE or DEADLINE_EXCEEDED the session is over: it never logs in again by itself, for a command
// sent twice is not harmless; every later call fails, and the caller makes a new session.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/types.h"

struct iscsi_context;

namespace lunkeeper {

struct IscsiOptions {
  absl::Duration timeout = absl::Seconds(5);
  // 24 bits that, with the initiator's name, make the session's identity (RFC 7143, 10.12.5): a login with
  // the same ones ends the earlier session. Random when absent.
  std::optional<uint32_t> isid = std::nullopt;
};

struct LunIdentity {
  std::string vendor;   // INQUIRY, trailing blanks removed
  std::string product;  // likewise; our own array puts its host's boot id here
  std::string serial;   // INQUIRY, page 80h
};

struct LunCapacity {
  uint64_t blocks = 0;
  uint32_t block_bytes = 0;
};

// SPC-4, table 61: what the holder of a reservation keeps from others.
enum class ReservationType : uint8_t {
  kWriteExclusive = 1,
  kExclusiveAccess = 3,
  kWriteExclusiveRegistrantsOnly = 5,
  kExclusiveAccessRegistrantsOnly = 6,
};

// A registrant's key, chosen by it; never zero.
using ReservationKey = uint64_t;

class IscsiSession final {
 public:
  static constexpr size_t kMaxTransferBytes = 1 << 20;

  // Connects, logs in with CHAP (without, when the user is empty), and waits until the LUN takes commands.
  static absl::StatusOr<std::unique_ptr<IscsiSession>> Login(const Connection& connection,
                                                             const IscsiOptions& options = {});
  ~IscsiSession();
  IscsiSession(const IscsiSession&) = delete;
  IscsiSession& operator=(const IscsiSession&) = delete;

  absl::StatusOr<LunIdentity> Inquire();
  absl::StatusOr<LunCapacity> ReadCapacity();
  // Whole blocks from block `lba` on, at most kMaxTransferBytes. INVALID_ARGUMENT: not whole blocks, or too
  // many.
  absl::Status Read(uint64_t lba, std::span<char> data);
  absl::Status Write(uint64_t lba, std::span<const char> data);
  absl::Status Flush();

  // Persistent reservations (SPC-4, 5.12), in persistent_reservation.cc. tgt knows neither PREEMPT AND ABORT
  // nor reservations that outlive its process, so neither is here. Registers `key` for this nexus, whatever
  // it had before; zero ends the registration.
  absl::Status Register(ReservationKey key);
  absl::Status Reserve(ReservationKey key, ReservationType type);
  absl::Status ReleaseReservation(ReservationKey key, ReservationType type);
  // Removes the reservation and every registration.
  absl::Status ClearReservations(ReservationKey key);
  // Removes the registrations under `victim`, and takes over its reservation if it has one.
  absl::Status Preempt(ReservationKey key, ReservationKey victim, ReservationType type);
  absl::StatusOr<std::vector<ReservationKey>> ReadKeys();
  // The holder's key; nullopt: nothing is reserved.
  absl::StatusOr<std::optional<ReservationKey>> ReadReservation();

  // Tells the target that we go. The session is over afterwards, whatever this returns.
  absl::Status Logout();

 private:
  struct ContextDeleter {
    void operator()(iscsi_context* context) const;
  };
  // What libiscsi's callback leaves behind; libiscsi points to it until it has called back or is gone.
  struct Answer;
  struct Command {
    const char* what;
    std::span<const uint8_t> cdb;
    std::span<const char> out = {};
    std::span<char> in = {};
  };

  IscsiSession(const Connection& connection, const IscsiOptions& options);

  absl::Status Connect(absl::Time deadline);
  absl::Status DrainUnitAttentions();
  // The CDB of READ(16) or WRITE(16); fails unless `bytes` is whole blocks and not too many.
  absl::StatusOr<std::vector<uint8_t>> Transfer(const char* what, uint8_t operation, uint64_t lba,
                                                size_t bytes);
  // Sends the command and waits; again when the LUN answers with a unit attention, which tells of the past.
  // Gives the number of bytes put into command.in.
  absl::StatusOr<size_t> Execute(const Command& command);
  absl::StatusOr<size_t> ExecuteOnce(const Command& command, absl::Time deadline, bool* unit_attention);
  // Serves the connection until `answer` is there; drops the session otherwise.
  absl::Status Await(const char* what, Answer& answer, absl::Time deadline);
  absl::Status ReserveOut(const char* what, uint8_t action, uint8_t type, ReservationKey key,
                          ReservationKey action_key);
  absl::Status Fail(absl::StatusCode code, const char* what, const std::string& why) const;

  const Connection connection_;
  const IscsiOptions options_;
  std::unique_ptr<iscsi_context, ContextDeleter> context_;  // null once the session is over
  uint32_t block_bytes_ = 0;
};

}  // namespace lunkeeper
