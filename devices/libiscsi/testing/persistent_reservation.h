#pragma once
// Persistent reservations of a LUN (SPC-4, 5.12): which initiators are registered with it, and which of them
// keeps the others from writing. The product uses none: a live victim can register again.
//
// tgt knows neither PREEMPT AND ABORT nor reservations that outlive its process, so neither is here.
// Blocking, not thread-safe, and failing like the session, which must outlive this.

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/libiscsi/testing/libiscsi_session.h"

namespace lunkeeper {

// SPC-4, table 61: what the holder of a reservation keeps from others.
enum class ReservationType : uint8_t {
  kWriteExclusive = 1,
  kExclusiveAccess = 3,
  kWriteExclusiveRegistrantsOnly = 5,
  kExclusiveAccessRegistrantsOnly = 6,
};

// A registrant's key, chosen by it; never zero.
using ReservationKey = uint64_t;

class PersistentReservation {
 public:
  explicit PersistentReservation(LibiscsiSession& session) : session_(session) {}

  // Registers `key` for this session's initiator in place of any earlier key; zero ends the registration.
  absl::Status RegisterKey(ReservationKey key);
  absl::Status ReserveLun(ReservationKey key, ReservationType type);
  absl::Status ReleaseReservation(ReservationKey key, ReservationType type);
  // Removes the reservation and every registration.
  absl::Status ClearReservations(ReservationKey key);
  // Removes the registrations under `victim`, and takes over its reservation if it has one.
  absl::Status PreemptKey(ReservationKey key, ReservationKey victim, ReservationType type);
  absl::StatusOr<std::vector<ReservationKey>> ReadKeys();
  // The holder's key; nullopt: nothing is reserved.
  absl::StatusOr<std::optional<ReservationKey>> ReadReservation();

 private:
  absl::Status SendReserveOut(const char* what, uint8_t action, uint8_t type, ReservationKey key,
                              ReservationKey action_key);

  LibiscsiSession& session_;
};

}  // namespace lunkeeper
