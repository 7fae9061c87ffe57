// Part of rbd_array_test: needs a Ceph. In which order a gateway gives an array away.

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/open_portal.h"
#include "devices/array/tgt/gateway_record.h"
#include "devices/array/tgt/gateway_standbys.h"
#include "devices/array/tgt/testing/held_at.h"
#include "devices/array/tgt/testing/on_ceph.h"

namespace lunkeeper::testing {
namespace {

struct HeldHandover {
  explicit HeldHandover(const std::string& point) : held(point) {}
  const HeldAt held;
};

// An array with a volume in use, whose gateway is to give it away, and stands still at a fail point of that.
// One that stands by is seen, and takes nothing.
struct Handover : HeldHandover, OnCeph {
  explicit Handover(const std::string& point) : HeldHandover(point) {}
  ~Handover() { held.LetGo(); }
  void BeginAndWait() {
    held.Arm();
    giving =
        std::jthread([this] { handed_over = array->HandOver([](const HandoverProgress&) { return true; }); });
    REQUIRE(Eventually([this] { return held.IsReached(); }, absl::Minutes(1)));
  }
  void Finish() {
    held.LetGo();
    giving.join();
    CHECK(handed_over == absl::OkStatus());
    CHECK(!ParseReleased(ReadGatewayRecord(*pool, options.name).value().value()).empty());
  }

  const std::unique_ptr<PlainInitiator> session = Login(Make("v"));
  const std::unique_ptr<CephPool> pool = ConnectToCeph();
  Standby standby{*pool, options.name, "host-b.boot", "host-b"};
  const std::jthread counting{[this](const std::stop_token& stop) {
    for (; !stop.stop_requested(); absl::SleepFor(absl::Milliseconds(50))) standby.CountUp();
  }};
  absl::Status handed_over;
  std::jthread giving;
};

struct BegunHandover : Handover {
  BegunHandover() : Handover("array.handover.begun") {}
};

struct CuttingHandover : Handover {
  CuttingHandover() : Handover("array.target.connections_deleted") {}
};

}  // namespace

// One that is answered while the tgtds end would say what is not so any more.
TEST_CASE_METHOD(BegunHandover, "on Ceph: a handover refuses calls before it does anything else") {
  BeginAndWait();
  const absl::Status refused = cluster->volumes().CreateVolume(Spec("w", 16)).status();
  CHECK(absl::IsUnavailable(refused));
  CHECK(absl::StrContains(refused.message(), "goes to another gateway"));
  CHECK(session->Write(0, 'a'));
  Finish();
}

// A node whose session is cut would come back here, and wait for a target that is offline.
TEST_CASE_METHOD(CuttingHandover, "on Ceph: a handover closes the portals before it ends the first session") {
  REQUIRE(FindOpenPortal(options.portals, absl::Seconds(10)));
  BeginAndWait();
  CHECK_FALSE(FindOpenPortal(options.portals, absl::Seconds(10)));
  Finish();
}

}  // namespace lunkeeper::testing
