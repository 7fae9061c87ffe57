#include "devices/libiscsi/testing/libiscsi_session.h"

#include <signal.h>

#include <array>
#include <catch2/catch.hpp>

#include "devices/libiscsi/testing/persistent_reservation.h"
#include "devices/libiscsi/testing/test_target.h"

namespace lunkeeper {
namespace {

constexpr uint64_t kSize = 8 << 20;
const ChapCredentials kChap = {"heartbeat", "sixteen-letters!"};

std::unique_ptr<TestTarget> StartTarget(const ChapCredentials& chap = {}) {
  auto target = TestTarget::Start(kSize, chap);
  INFO(target.status());
  REQUIRE(target.ok());
  return *std::move(target);
}

std::unique_ptr<LibiscsiSession> LogIn(const Connection& connection,
                                       absl::Duration timeout = absl::Seconds(5)) {
  auto session = LibiscsiSession::Login(connection, timeout);
  INFO(session.status());
  REQUIRE(session.ok());
  return *std::move(session);
}

absl::StatusCode LoginCode(const Connection& connection) {
  return LibiscsiSession::Login(connection).status().code();
}

TEST_CASE("a LUN tells who it is and how large") {
  const auto target = StartTarget();
  const auto session = LogIn(target->ConnectionOf("a"));
  const auto identity = session->ReadIdentity();
  REQUIRE(identity.ok());
  CHECK(identity->vendor == "LUNKEEPR");
  CHECK(identity->product == "0123456789abcdef");
  CHECK(identity->serial == "serial-of-the-test");
  const auto capacity = session->ReadCapacity();
  REQUIRE(capacity.ok());
  CHECK(capacity->blocks * capacity->block_bytes == kSize);
}

TEST_CASE("what was written is read back by another session") {
  const auto target = StartTarget();
  const auto writer = LogIn(target->ConnectionOf("a"));
  const std::vector<char> data(LibiscsiSession::kMaxTransferBytes, 'x');
  REQUIRE(writer->WriteBlocks(8, data).ok());
  const auto reader = LogIn(target->ConnectionOf("b"));
  std::vector<char> seen(data.size());
  REQUIRE(reader->ReadBlocks(8, seen).ok());
  CHECK(seen == data);
  std::array<char, 512> before = {'?'};
  REQUIRE(reader->ReadBlocks(7, before).ok());
  CHECK(before == std::array<char, 512>{});
}

TEST_CASE(
    "a transfer that is not whole blocks, too long or past the end is refused and the session lives on") {
  const auto target = StartTarget();
  const auto session = LogIn(target->ConnectionOf("a"));
  std::vector<char> data(511);
  CHECK(absl::IsInvalidArgument(session->WriteBlocks(0, data)));
  data.resize(0);
  CHECK(absl::IsInvalidArgument(session->ReadBlocks(0, data)));
  data.resize(LibiscsiSession::kMaxTransferBytes + 512);
  CHECK(absl::IsInvalidArgument(session->ReadBlocks(0, data)));
  data.resize(512);
  CHECK(absl::IsInternal(session->ReadBlocks(kSize, data)));
  CHECK(session->ReadBlocks(0, data).ok());
}

TEST_CASE("a login with a wrong secret, without one, or to no target is refused") {
  const auto target = StartTarget(kChap);
  Connection connection = target->ConnectionOf("a");
  CHECK(LoginCode(connection) == absl::StatusCode::kOk);
  connection.chap.secret = "another-16-chars";
  CHECK(LoginCode(connection) == absl::StatusCode::kPermissionDenied);
  connection.chap = {};
  CHECK(LoginCode(connection) == absl::StatusCode::kPermissionDenied);
  connection = target->ConnectionOf("a");
  connection.target = Iqn("iqn.2026-11.io.lunkeeper:nowhere");
  CHECK(LoginCode(connection) == absl::StatusCode::kPermissionDenied);
  connection.portal = "127.0.0.1:1";
  CHECK(LoginCode(connection) == absl::StatusCode::kUnavailable);
}

TEST_CASE("errors never show the secret") {
  const auto target = StartTarget(kChap);
  Connection connection = target->ConnectionOf("a");
  connection.chap.secret = "another-16-chars";
  const auto session = LibiscsiSession::Login(connection);
  CHECK(std::string(session.status().message()).find(connection.chap.secret) == std::string::npos);
}

TEST_CASE("a session whose target dies fails at once and does not come back") {
  const auto target = StartTarget();
  const auto session = LogIn(target->ConnectionOf("a"));
  kill(target->pid(), SIGKILL);
  std::array<char, 512> data = {};
  const absl::Time start = absl::Now();
  CHECK(absl::IsUnavailable(session->ReadBlocks(0, data)));
  CHECK(absl::IsUnavailable(session->ReadBlocks(0, data)));
  CHECK(absl::Now() - start < absl::Seconds(2));
}

TEST_CASE("a target that does not answer is given up at the time limit") {
  const auto target = StartTarget();
  constexpr absl::Duration kTimeout = absl::Milliseconds(300);
  const auto session = LogIn(target->ConnectionOf("a"), kTimeout);
  kill(target->pid(), SIGSTOP);
  std::array<char, 512> data = {};
  const absl::Time start = absl::Now();
  CHECK(absl::IsDeadlineExceeded(session->ReadBlocks(0, data)));
  CHECK(absl::IsDeadlineExceeded(LibiscsiSession::Login(target->ConnectionOf("b"), kTimeout).status()));
  CHECK(absl::Now() - start < absl::Seconds(3));
  kill(target->pid(), SIGCONT);
  CHECK(absl::IsUnavailable(session->ReadBlocks(0, data)));
}

TEST_CASE("a reservation keeps others from writing until it is released") {
  const auto target = StartTarget();
  const auto holder = LogIn(target->ConnectionOf("a"));
  const auto other = LogIn(target->ConnectionOf("b"));
  PersistentReservation reservation(*holder);
  const std::array<char, 512> data = {'x'};
  REQUIRE(reservation.RegisterKey(0xa).ok());
  REQUIRE(reservation.ReserveLun(0xa, ReservationType::kWriteExclusiveRegistrantsOnly).ok());
  CHECK(reservation.ReadReservation().value() == 0xaU);
  CHECK(absl::IsFailedPrecondition(other->WriteBlocks(0, data)));
  CHECK(holder->WriteBlocks(0, data).ok());
  REQUIRE(reservation.ReleaseReservation(0xa, ReservationType::kWriteExclusiveRegistrantsOnly).ok());
  CHECK(reservation.ReadReservation().value() == std::nullopt);
  CHECK(other->WriteBlocks(0, data).ok());
}

TEST_CASE("preempting removes the victim's registration and takes its reservation") {
  const auto target = StartTarget();
  const auto victim = LogIn(target->ConnectionOf("a"));
  const auto winner = LogIn(target->ConnectionOf("b"));
  PersistentReservation victims(*victim), winners(*winner);
  const auto type = ReservationType::kWriteExclusiveRegistrantsOnly;
  REQUIRE(victims.RegisterKey(0xa).ok());
  REQUIRE(victims.ReserveLun(0xa, type).ok());
  REQUIRE(winners.RegisterKey(0xb).ok());
  CHECK(winners.ReadKeys().value().size() == 2);
  REQUIRE(winners.PreemptKey(0xb, 0xa, type).ok());
  CHECK(winners.ReadKeys().value() == std::vector<ReservationKey>{0xb});
  CHECK(winners.ReadReservation().value() == 0xbU);
  CHECK(absl::IsFailedPrecondition(victim->WriteBlocks(0, std::array<char, 512>{})));
  REQUIRE(winners.ClearReservations(0xb).ok());
  CHECK(winners.ReadKeys().value().empty());
}

TEST_CASE("a registration ends with key zero") {
  const auto target = StartTarget();
  const auto session = LogIn(target->ConnectionOf("a"));
  PersistentReservation reservation(*session);
  REQUIRE(reservation.RegisterKey(0xa).ok());
  REQUIRE(reservation.RegisterKey(0).ok());
  CHECK(reservation.ReadKeys().value().empty());
}

}  // namespace
}  // namespace lunkeeper
