// An array that is reached over several networks; each is an address of loopback here. Needs root.
#include <catch2/catch.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/tgt_client.h"

namespace lunkeeper::testing {
namespace {

const NodeId kNode("db.0000000000000001");
const std::string kOfNobody = "192.0.2.7:3260";  // RFC 5737: an address that no host has

std::string PortalAt(const std::string& address) { return absl::StrCat(address, ":", FreePort()); }

struct Networks : ArrayFixture {
  Connection Grant(const std::string& volume) {
    const auto view = Cluster();
    const VolumeId id = view->volumes().CreateVolume(Spec(volume, 16)).value().id;
    return view->grants().AcquireGrant({.volume = id, .node = kNode}, absl::ZeroDuration())->connection;
  }
  const std::string one = PortalAt("127.0.0.1"), two = PortalAt("127.0.0.2");
};

TEST_CASE_METHOD(Networks, "a volume is reached at each portal, and volumes begin at different ones") {
  options.portals = {one, two};
  REQUIRE(Open() == absl::OkStatus());
  std::set<std::string> first;
  for (const char* name : {"a", "b"}) {
    Connection connection = Grant(name);
    REQUIRE(connection.other_portals.size() == 1);
    first.insert(connection.portal);
    CHECK((*PlainInitiator::Login(connection))->Write(1, 'x'));
    connection.portal = connection.other_portals[0];
    CHECK((*PlainInitiator::Login(connection))->Read(1) == 'x');
  }
  CHECK(first == std::set<std::string>{one, two});
}

TEST_CASE_METHOD(Networks, "an array serves while one of its addresses is not there") {
  options.portals = {kOfNobody, two};
  REQUIRE(Open() == absl::OkStatus());
  const Connection connection = Grant("a");
  CHECK(connection.portal == two);
  CHECK(connection.other_portals.empty());  // that address may be another host's
  CHECK(PlainInitiator::Login(connection).ok());
}

TEST_CASE_METHOD(Networks, "an array none of whose addresses is there does not begin, and names them") {
  options.portals = {kOfNobody};
  const absl::Status refused = Open();
  CHECK(absl::IsUnavailable(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains(kOfNobody));
}

TEST_CASE_METHOD(Networks, "a portal that was closed under the agent is opened again") {
  options.portals = {one, two};
  REQUIRE(Open() == absl::OkStatus());
  REQUIRE(TgtClient(options.control_port).ClosePortal(two).ok());
  Connection connection = Grant("a");
  connection.portal = two;
  CHECK(Eventually([&] { return PlainInitiator::Login(connection).ok(); }, absl::Minutes(1)));
}

TEST_CASE_METHOD(Networks, "a portal that is added or taken away costs the other one no session") {
  options.portals = {one};
  REQUIRE(Open() == absl::OkStatus());
  Connection connection = Grant("a");
  const auto session = PlainInitiator::Login(connection).value();
  options.portals = {one, two};
  REQUIRE(Open() == absl::OkStatus());
  CHECK(session->Write(1, 'x'));
  connection.portal = two;
  CHECK(PlainInitiator::Login(connection).ok());
  options.portals = {one};
  REQUIRE(Open() == absl::OkStatus());
  CHECK_FALSE(PlainInitiator::Login(connection).ok());
  connection.portal = one;
  CHECK(PlainInitiator::Login(connection).ok());
}

}  // namespace
}  // namespace lunkeeper::testing
