// Which portal is next, and when the connection tries a closed one: by times that the test sets.

#include "devices/iscsi/lun_connection.h"

#include <poll.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <thread>

#include "base/testing/silent_port.h"
#include "devices/iscsi/testing/session_rig.h"

namespace lunkeeper::iscsi {
namespace {

using std::chrono::milliseconds;

constexpr auto kNever = Lun::Clock::time_point::max();

// A connection to a target with these portals, which nobody has tried yet.
struct PortalsRig {
  PortalsRig(const std::string& first, std::vector<std::string> others, std::vector<std::string> peers = {}) {
    session.connection.portal = first;
    session.connection.other_portals = std::move(others);
    session.connection.peer_portals = std::move(peers);
    connection.emplace(session.connection, &session.session);
  }
  // 0 or an errno, once it is known.
  int Connect() {
    if (const int error = connection->Open(); error != 0) return error;
    pollfd ended{.fd = connection->fd(), .events = POLLOUT, .revents = 0};
    REQUIRE(::poll(&ended, 1, 60'000) == 1);
    return connection->FinishOpen().error;
  }
  // Leaves a portal that refuses for the next one.
  void PassClosedPortal() {
    REQUIRE(Connect() == ECONNREFUSED);
    connection->Close();
    REQUIRE(Connect() == 0);
  }
  bool FindAt(int milliseconds_from_start) {
    return connection->FindOpenedPortal(start + milliseconds(milliseconds_from_start));
  }
  // Logged in, with a LUN reset that waits for old commands, and for too long from then on.
  void AwaitReset(int late_at) {
    session.LogIn();
    connection->BeginReset(start + milliseconds(late_at));
  }
  // Whether it finds none, at looks at which one that is open would be found.
  bool FindsNone(int milliseconds_from_start) {
    for (int look = 0; look < 50; ++look) {
      if (FindAt(milliseconds_from_start + 100 * look)) return false;
      std::this_thread::yield();
    }
    return true;
  }
  // At the looks from this time on: each takes a moment of the real time.
  bool FindFrom(int milliseconds_from_start) {
    for (int look = 0; look < 1'000'000; ++look) {
      if (FindAt(milliseconds_from_start + 100 * look)) return true;
      std::this_thread::yield();
    }
    return false;
  }
  // Where the present connection leads to.
  std::string Peer() const {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    REQUIRE(::getpeername(connection->fd(), reinterpret_cast<sockaddr*>(&peer), &size) == 0);
    return "127.0.0.1:" + std::to_string(ntohs(peer.sin_port));
  }

  SessionRig session;
  std::optional<LunConnection> connection;
  const Lun::Clock::time_point start = Lun::Clock::now();
};

TEST_CASE("a portal that refused is looked at again and again, and is the next one as soon as it opens") {
  testing::SilentPort gateway, dead, third;
  dead.Freeze();
  third.Freeze();
  PortalsRig rig(gateway.portal(), {dead.portal(), third.portal()});
  rig.PassClosedPortal();
  REQUIRE(rig.connection->PauseBeforeOpen(milliseconds(900)) == milliseconds(300));
  REQUIRE(rig.connection->next_look() <= rig.start);  // at once
  REQUIRE_FALSE(rig.FindAt(0));
  REQUIRE(rig.connection->next_look() == rig.start + milliseconds(100));
  REQUIRE_FALSE(rig.FindAt(100));
  gateway.Freeze();
  REQUIRE_FALSE(rig.FindAt(150));  // not yet due
  REQUIRE(rig.FindFrom(200));
  REQUIRE(rig.connection->PauseBeforeOpen(milliseconds(900)) == milliseconds(0));
  rig.connection->Close();
  REQUIRE(rig.Connect() == 0);
  REQUIRE(rig.Peer() == gateway.portal());
  REQUIRE(rig.connection->next_look() == kNever);
  for (const testing::SilentPort* port : {&dead, &third}) {
    rig.connection->Close();
    rig.connection->Close();  // leaves nothing a second time
    REQUIRE(rig.Connect() == 0);
    REQUIRE(rig.Peer() == port->portal());
  }
  gateway.Refuse();
  rig.connection->Close();
  rig.PassClosedPortal();
  REQUIRE(rig.connection->next_look() <= rig.start);  // at once, whenever the last look was
}

TEST_CASE("a look that is not answered goes on") {
  testing::SilentPort gateway, dead;
  dead.Freeze();
  PortalsRig rig(gateway.portal(), {dead.portal()});
  rig.PassClosedPortal();
  gateway.FallSilent();
  const std::set<unsigned> before = gateway.Attempts();
  REQUIRE_FALSE(rig.FindAt(0));
  const std::set<unsigned> looking = gateway.Attempts();
  REQUIRE(looking.size() == before.size() + 1);
  for (const int at : {100, 200, 300}) REQUIRE_FALSE(rig.FindAt(at));
  REQUIRE(gateway.Attempts() == looking);
  rig.connection->Close();  // with the connection it was beside
  REQUIRE(gateway.Attempts() == before);
}

// The refusal comes while the connection is waited for, as through a network.
TEST_CASE("a portal that refuses late is looked at too") {
  testing::SilentPort gateway, dead;
  dead.Freeze();
  gateway.FallSilent();
  PortalsRig rig(gateway.portal(), {dead.portal()});
  REQUIRE(rig.connection->Open() == 0);
  gateway.Refuse();
  pollfd ended{.fd = rig.connection->fd(), .events = POLLOUT, .revents = 0};
  REQUIRE(::poll(&ended, 1, 60'000) == 1);
  REQUIRE(rig.connection->FinishOpen().error == ECONNREFUSED);
  rig.connection->Close();
  REQUIRE(rig.Connect() == 0);
  REQUIRE(rig.connection->next_look() != kNever);
}

TEST_CASE("a portal that refused before the last login that worked is not looked at") {
  testing::SilentPort gateway, dead;
  dead.Freeze();
  PortalsRig rig(gateway.portal(), {dead.portal()});
  rig.PassClosedPortal();
  REQUIRE(rig.connection->next_look() != kNever);
  rig.connection->NoteSuccess();
  REQUIRE(rig.connection->next_look() == kNever);
}

TEST_CASE("nothing is looked at while there is no connection, nor once the login is over") {
  testing::SilentPort gateway, dead, third;
  dead.Freeze();
  PortalsRig rig(gateway.portal(), {dead.portal(), third.portal()});
  rig.PassClosedPortal();
  SECTION("no connection") { rig.connection->Close(); }
  SECTION("logged in") { rig.session.LogIn(); }
  REQUIRE(rig.connection->next_look() == kNever);
  REQUIRE_FALSE(rig.FindAt(0));
}

// The tgtd that it waits in may forget it for a second one, and keep its session.
TEST_CASE("a reset that waits is left for another host's portal, and never for one of the same host") {
  testing::SilentPort own, beside, peer;
  own.Freeze();
  PortalsRig rig(own.portal(), {beside.portal(), peer.portal()}, {peer.portal()});
  REQUIRE(rig.Connect() == 0);
  rig.AwaitReset(1000);
  REQUIRE(rig.connection->next_look() == rig.start + milliseconds(1000));
  beside.Freeze();
  REQUIRE(rig.FindsNone(1000));
  SECTION("it opens") {
    peer.Freeze();
    REQUIRE(rig.FindFrom(10'000));
    REQUIRE(rig.connection->has_opened_portal());
    rig.connection->Close(/*leave_portal=*/true);
    REQUIRE(rig.Connect() == 0);
    REQUIRE(rig.Peer() == peer.portal());
  }
  SECTION("the reset is answered") {
    rig.connection->EndReset();
    REQUIRE(rig.connection->next_look() == kNever);
  }
}

TEST_CASE(
    "another host's portal is looked at during a reset at once if it refused, and else when that is late") {
  testing::SilentPort own, peer;
  own.Freeze();
  const bool refused = GENERATE(false, true);
  PortalsRig rig(refused ? peer.portal() : own.portal(), {refused ? own.portal() : peer.portal()},
                 {refused ? own.portal() : peer.portal()});
  if (refused) rig.PassClosedPortal();
  if (!refused) REQUIRE(rig.Connect() == 0);
  rig.AwaitReset(1000);
  peer.Freeze();
  REQUIRE(rig.FindsNone(-10'000) != refused);
}

// Which of them are the same host nobody says.
TEST_CASE("a reset that waits at a peer is left for the own host alone") {
  testing::SilentPort own, first, second;
  first.Freeze();
  PortalsRig rig(own.portal(), {first.portal(), second.portal()}, {first.portal(), second.portal()});
  rig.PassClosedPortal();
  rig.AwaitReset(0);
  second.Freeze();
  REQUIRE(rig.FindsNone(0));
  own.Freeze();
  REQUIRE(rig.FindFrom(10'000));
  rig.connection->Close(/*leave_portal=*/true);
  REQUIRE(rig.Connect() == 0);
  REQUIRE(rig.Peer() == own.portal());
}

TEST_CASE("each portal has its turn, and the first round ends with the last of them") {
  testing::SilentPort first, second;
  PortalsRig rig(first.portal(), {second.portal()});
  for (int i = 0; i < 2; ++i) {
    REQUIRE(rig.connection->in_first_round());
    REQUIRE(rig.Connect() == ECONNREFUSED);
    rig.connection->Close();
  }
  REQUIRE_FALSE(rig.connection->in_first_round());
  second.Freeze();
  rig.PassClosedPortal();
  REQUIRE(rig.Peer() == second.portal());
  rig.connection->NoteSuccess();
  REQUIRE(rig.connection->in_first_round());
}

TEST_CASE("a redirect's address is compared as an address, not as a text") {
  const auto is = [](const char* portal, const char* named) {
    return IsTargetAddress(*ParseAddress(portal), named);
  };
  for (const char* same : {"10.0.0.5:3260", "10.0.0.5:3260,1", "10.0.0.5", "10.0.0.5,1"})
    CHECK(is("10.0.0.5:3260", same));
  for (const char* same : {"[fd00::5]:3260", "[fd00:0:0::5]:3260,1", "[FD00::5]"})
    CHECK(is("[fd00::5]:3260", same));
  for (const char* other :
       {"10.0.0.5:3261", "10.0.0.6:3260", "10.0.0.5:", "10.0.0.5:3260x", "10.0.0.5:68796", "", ":3260",
        "[10.0.0.5]:3260", "[fd00::5]:3260", "storage-2:3260", "[", "[]", ","})
    CHECK_FALSE(is("10.0.0.5:3260", other));
  CHECK_FALSE(is("10.0.0.5:3260", std::string(200, '1').c_str()));
  CHECK_FALSE(is("[fd00::5]:3260", "fd00::5"));
  CHECK_FALSE(is("[fd00::5]:3260", "[fd00::5"));
}

}  // namespace
}  // namespace lunkeeper::iscsi
