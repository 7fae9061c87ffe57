// Two commands with service actions: PERSISTENT RESERVE OUT changes registrations and the reservation,
// PERSISTENT RESERVE IN reads them. Keys are 64 bits, and a LUN knows an initiator by its nexus (name and
// session id), so a new login with another ISID is another registrant.
//
// Registering ignores the key that was there before (REGISTER AND IGNORE EXISTING KEY): after a crash nobody
// remembers it, and the nexus that registers is its owner.

#include "devices/libiscsi/testing/persistent_reservation.h"

#include <algorithm>
#include <array>
#include <span>

extern "C" {
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
}

#include "base/status_macros.h"

namespace lunkeeper {
namespace {

constexpr uint8_t kReserveIn = 0x5e, kReserveOut = 0x5f;
// Service actions (SPC-4, tables 211 and 222).
constexpr uint8_t kReadKeys = 0, kReadReservation = 1;
constexpr uint8_t kReserve = 1, kRelease = 2, kClear = 3, kPreempt = 4, kRegisterAndIgnoreExistingKey = 6;
constexpr size_t kHeaderBytes = 8, kKeyBytes = 8;

// PERSISTENT RESERVE IN; `length` is how much room there is for the answer.
std::array<uint8_t, 10> ReserveInCdb(uint8_t action, uint16_t length) {
  std::array<uint8_t, 10> cdb = {kReserveIn, action};
  scsi_set_uint16(&cdb[7], length);
  return cdb;
}

const unsigned char* BytesOf(std::span<const char> data) {
  return reinterpret_cast<const unsigned char*>(data.data());
}

}  // namespace

absl::Status PersistentReservation::SendReserveOut(const char* what, uint8_t action, uint8_t type,
                                                   ReservationKey key, ReservationKey action_key) {
  // The parameter list of all actions used here (SPC-4, table 219): the key of the sender, and the key that
  // the action is about.
  std::array<char, 24> parameters = {};
  auto* const bytes = reinterpret_cast<unsigned char*>(parameters.data());
  scsi_set_uint64(bytes, key);
  scsi_set_uint64(bytes + kKeyBytes, action_key);
  const std::array<uint8_t, 10> cdb = {kReserveOut, action, type, 0, 0, 0, 0, 0, parameters.size()};
  return session_.Execute({.what = what, .cdb = cdb, .out = parameters}).status();
}

absl::Status PersistentReservation::RegisterKey(ReservationKey key) {
  return SendReserveOut("register a reservation key", kRegisterAndIgnoreExistingKey, 0, 0, key);
}

absl::Status PersistentReservation::ReserveLun(ReservationKey key, ReservationType type) {
  return SendReserveOut("reserve", kReserve, static_cast<uint8_t>(type), key, 0);
}

absl::Status PersistentReservation::ReleaseReservation(ReservationKey key, ReservationType type) {
  return SendReserveOut("release the reservation", kRelease, static_cast<uint8_t>(type), key, 0);
}

absl::Status PersistentReservation::ClearReservations(ReservationKey key) {
  return SendReserveOut("clear reservations", kClear, 0, key, 0);
}

absl::Status PersistentReservation::PreemptKey(ReservationKey key, ReservationKey victim,
                                               ReservationType type) {
  return SendReserveOut("preempt", kPreempt, static_cast<uint8_t>(type), key, victim);
}

absl::StatusOr<std::vector<ReservationKey>> PersistentReservation::ReadKeys() {
  std::vector<char> data(4096);
  const auto cdb = ReserveInCdb(kReadKeys, static_cast<uint16_t>(data.size()));
  ASSIGN_OR_RETURN(const size_t got,
                   session_.Execute({.what = "read reservation keys", .cdb = cdb, .in = data}));
  if (got < kHeaderBytes)
    return session_.MakeError(absl::StatusCode::kInternal, "read reservation keys",
                              "the answer is too short");
  // The LUN says how long the list is, and may have cut it off at the room there was.
  const size_t end = std::min<size_t>(got, kHeaderBytes + scsi_get_uint32(BytesOf(data) + 4));
  std::vector<ReservationKey> keys;
  for (size_t at = kHeaderBytes; at + kKeyBytes <= end; at += kKeyBytes) {
    keys.push_back(scsi_get_uint64(BytesOf(data) + at));
  }
  return keys;
}

absl::StatusOr<std::optional<ReservationKey>> PersistentReservation::ReadReservation() {
  std::array<char, 24> data = {};
  const auto cdb = ReserveInCdb(kReadReservation, static_cast<uint16_t>(data.size()));
  ASSIGN_OR_RETURN(const size_t got,
                   session_.Execute({.what = "read the reservation", .cdb = cdb, .in = data}));
  if (got < kHeaderBytes + kKeyBytes || scsi_get_uint32(BytesOf(data) + 4) < kKeyBytes) {
    return std::optional<ReservationKey>();  // an empty list: nobody holds a reservation
  }
  return std::optional<ReservationKey>(scsi_get_uint64(BytesOf(data) + kHeaderBytes));
}

}  // namespace lunkeeper
