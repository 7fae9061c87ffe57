// A BlockSession with a real tgtd on 127.0.0.1, and beside another initiator, libiscsi.

#include "devices/iscsi/block_session.h"

#include "devices/iscsi/testing/tgt_lun_rig.h"
#include "devices/libiscsi/testing/libiscsi_session.h"
#include "devices/libiscsi/testing/persistent_reservation.h"

namespace lunkeeper {
namespace {

using iscsi::BlockSession;

constexpr absl::Duration kLimit = absl::Seconds(30);

struct TgtSessionRig {
  Connection ConnectionOf(const std::string& initiator) const {
    return {.portal = tgtd.portal(),
            .target = Iqn(kName),
            .initiator = Iqn(kInitiator + (":" + initiator)),
            .chap = {kUser, kSecret},
            .target_chap = {"its-own", kTargetSecret}};
  }
  std::unique_ptr<BlockSession> LogIn(const std::string& initiator) const {
    auto session = BlockSession::Login(ConnectionOf(initiator), kLimit);
    INFO(session.status());
    REQUIRE(session.ok());
    return *std::move(session);
  }

  Tgtd tgtd{kParameters, 0};
  std::string block = std::string(512, 'x');
};

TEST_CASE_METHOD(TgtSessionRig, "tgtd: what one session writes another one reads, with CHAP both ways") {
  const auto writer = LogIn("a"), reader = LogIn("b");
  std::string data(BlockSession::kMaxTransferBytes, '\0'), seen(data);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 13 + i / 4096);
  REQUIRE(writer->WriteBlocks(8, data).ok());
  REQUIRE(reader->ReadBlocks(8, seen).ok());
  CHECK(seen == data);
  REQUIRE(reader->ReadBlocks(7, block).ok());
  CHECK(block == std::string(512, '\0'));
  CHECK(absl::IsInvalidArgument(reader->ReadBlocks(kSize / 512, block)));
}

TEST_CASE_METHOD(TgtSessionRig, "tgtd: a wrong secret, none, or an unknown target is a refusal") {
  Connection connection = ConnectionOf("a");
  SECTION("a wrong secret") { connection.chap.secret = "another-16-chars"; }
  SECTION("none") { connection.chap = {}, connection.target_chap = {}; }
  SECTION("an unknown target") { connection.target = Iqn("iqn.2026-11.io.lunkeeper:nowhere"); }
  const absl::Status status = BlockSession::Login(connection, kLimit).status();
  CHECK(absl::IsPermissionDenied(status));
  CHECK_THAT(std::string(status.message()), !Catch::Contains("another-16-chars"));
}

TEST_CASE_METHOD(TgtSessionRig,
                 "tgtd: a target that does not prove itself is another one's, and no refusal") {
  Connection connection = ConnectionOf("a");
  connection.target_chap.secret = "some-other-secret";
  CHECK(absl::IsUnavailable(BlockSession::Login(connection, kLimit).status()));
}

TEST_CASE_METHOD(TgtSessionRig, "tgtd: a login ends the initiator's session before it, and no other one's") {
  const auto other = LogIn("b"), first = LogIn("a"), second = LogIn("a");
  CHECK(second->WriteBlocks(0, block).ok());
  CHECK(absl::IsUnavailable(first->WriteBlocks(0, block)));
  CHECK(other->WriteBlocks(0, block).ok());
  CHECK(second->WriteBlocks(0, block).ok());
}

TEST_CASE_METHOD(TgtSessionRig, "tgtd: a reservation of another initiator keeps a session from writing") {
  const auto session = LogIn("a");
  const auto holder = LibiscsiSession::Login(ConnectionOf("b"));
  REQUIRE(holder.ok());
  PersistentReservation reservation(**holder);
  constexpr auto kType = ReservationType::kWriteExclusiveRegistrantsOnly;
  REQUIRE(reservation.RegisterKey(0xa).ok());
  REQUIRE(reservation.ReserveLun(0xa, kType).ok());
  CHECK(absl::IsFailedPrecondition(session->WriteBlocks(0, block)));
  CHECK(session->ReadBlocks(0, block).ok());
  REQUIRE(reservation.ReleaseReservation(0xa, kType).ok());
  CHECK(session->WriteBlocks(0, block).ok());
}

TEST_CASE_METHOD(TgtSessionRig, "tgtd: a session does not come back with a daemon that died") {
  const auto session = LogIn("a");
  tgtd.Kill();
  CHECK(absl::IsUnavailable(session->WriteBlocks(0, block)));
  tgtd.StartServing();
  CHECK(absl::IsUnavailable(session->WriteBlocks(0, block)));
  CHECK(LogIn("a")->WriteBlocks(0, block).ok());
}

}  // namespace
}  // namespace lunkeeper
