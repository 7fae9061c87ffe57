// What becomes of a LUN whose target is said to be elsewhere, or nowhere.

#include "devices/iscsi/testing/lun_rig.h"

namespace lunkeeper {
namespace {

using iscsi::FakeTarget;

void SendLoginsTo(const std::string& address, FakeTarget& target, uint8_t detail = 1) {
  target.Change(
      [&](auto& traits) { traits.login_class = 1, traits.login_detail = detail, traits.moved_to = address; });
}

// Until `target` has answered a login as it does now: one answer may have been under way.
bool RefusesLogin(LunRig& rig, FakeTarget& target) {
  const size_t before = target.Count("refused login");
  return rig.loop.RunUntil([&] { return target.Count("refused login") >= before + 2; }, seconds(60));
}

TEST_CASE("a login that is sent to another portal of the volume goes there next") {
  FakeTarget passed_over, named;
  const bool permanently = GENERATE(false, true);
  LunRig rig([&](LunOptions& options) {
    options.connection.other_portals = {passed_over.portal(), named.portal()};
  });
  SendLoginsTo(named.portal() + (permanently ? "" : ",1"), rig.target, permanently ? 2 : 1);
  rig.Start();
  REQUIRE(named.Count("login") == 1);
  // Once more, since it led to something.
  named.Change([](auto& traits) { traits.login_class = 3; });
  named.Inject({});
  REQUIRE(rig.loop.RunUntil([&] { return named.Count("refused login") == 2; }, seconds(60)));
  REQUIRE(passed_over.connections() == 0);
}

TEST_CASE("a login is sent to no address that is not a portal of the volume, and the next portal is tried") {
  FakeTarget stranger, other;
  LunRig rig([&](LunOptions& options) { options.connection.other_portals = {other.portal()}; });
  const std::string elsewhere = stranger.portal();
  SendLoginsTo(GENERATE_COPY(as<std::string>(), elsewhere, "storage-2:3260", "", "[::1"), rig.target);
  rig.Start();
  REQUIRE(other.Count("login") == 1);
  REQUIRE(stranger.connections() == 0);
}

TEST_CASE("a target that sends logins elsewhere is asked again, and says where to") {
  LunRig rig;
  SendLoginsTo("10.0.0.9:3260", rig.target, 2);
  rig.lun->Start();
  REQUIRE(RefusesLogin(rig, rig.target));
  REQUIRE(rig.state.health == LunHealth::kConnecting);
  REQUIRE_THAT(rig.state.reason.Load(), Catch::Contains("10.0.0.9:3260 (status 0102)"));
  rig.target.Change([](auto& traits) { traits.login_class = 0; });
  REQUIRE(rig.Becomes(LunHealth::kHealthy));
}

TEST_CASE("portals that send logins to each other keep nobody from a third one") {
  FakeTarget second, third;
  LunRig rig([&](LunOptions& options) {
    options.connection.other_portals = {second.portal(), third.portal()};
  });
  SendLoginsTo(second.portal(), rig.target);
  SendLoginsTo(rig.target.portal(), second);
  rig.Start();
  REQUIRE(third.Count("login") == 1);
}

TEST_CASE("a refusal of before the last login that worked ends nothing") {
  FakeTarget other;
  LunRig rig([&](LunOptions& options) { options.connection.other_portals = {other.portal()}; });
  const auto refuses = [](auto& traits) { traits.login_class = 2, traits.login_detail = 3; };
  rig.target.Change(refuses);
  rig.Start();
  rig.target.Change([](auto& traits) { traits.login_class = 0; });
  other.Change(refuses);
  other.Inject({});
  REQUIRE(rig.loop.RunUntil([&] { return rig.state.logins == 2; }, seconds(60)));
  REQUIRE(rig.target.Count("login") == 1);
}

// The text goes into messages whose texts are UTF-8, of all volumes of the node, and onto terminals.
TEST_CASE("what a target says in bytes that are no text is told in characters that are") {
  LunRig rig;
  SendLoginsTo("\xff\xc3\n\x1b[2J:3260", rig.target, 2);
  rig.lun->Start();
  REQUIRE(RefusesLogin(rig, rig.target));
  const std::string reason = rig.state.reason.Load();
  REQUIRE_THAT(reason, Catch::Contains("????[2J:3260 (status 0102)"));
  REQUIRE(std::ranges::all_of(reason, [](char c) { return c >= ' ' && c <= '~'; }));
}

// So a fenced node does not wait for the end of the replacement time.
TEST_CASE("a login that one portal sends to another one, which refuses it, is refused") {
  FakeTarget other;
  LunRig rig([&](LunOptions& options) { options.connection.other_portals = {other.portal()}; });
  SendLoginsTo(other.portal(), rig.target);
  other.Change([](auto& traits) { traits.login_class = 2, traits.login_detail = 3; });
  rig.lun->Start();
  REQUIRE(rig.Becomes(LunHealth::kFailed, seconds(10)));
  REQUIRE(rig.state.failure == LunFailure::kRefused);
}

TEST_CASE("a portal that sent logins to another one, and no longer does, has refused none") {
  FakeTarget other;
  LunRig rig([&](LunOptions& options) { options.connection.other_portals = {other.portal()}; });
  SendLoginsTo(other.portal(), rig.target);
  other.Change([](auto& traits) { traits.login_class = 3; });
  rig.lun->Start();
  REQUIRE(RefusesLogin(rig, other));
  rig.target.Change([](auto& traits) { traits.login_class = 3; });
  REQUIRE(RefusesLogin(rig, rig.target));
  other.Change([](auto& traits) { traits.login_class = 2, traits.login_detail = 3; });
  REQUIRE(RefusesLogin(rig, other));
  REQUIRE(rig.state.health == LunHealth::kConnecting);
}

// It may have been somebody else's answer, or that of a gateway which takes the array a moment later.
TEST_CASE("a refusal that was not a portal's last word ends nothing") {
  FakeTarget other(/*open=*/false);
  LunRig rig([&](LunOptions& options) { options.connection.other_portals = {other.portal()}; });
  rig.target.Change([](auto& traits) { traits.login_class = 2, traits.login_detail = 3; });
  rig.lun->Start();
  REQUIRE(RefusesLogin(rig, rig.target));
  rig.target.Change([](auto& traits) { traits.login_class = 3; });  // not now
  REQUIRE(RefusesLogin(rig, rig.target));
  other.Change([](auto& traits) { traits.login_class = 2, traits.login_detail = 3; });
  other.Open();
  REQUIRE(RefusesLogin(rig, other));
  REQUIRE(rig.state.health == LunHealth::kConnecting);
  rig.target.Change([](auto& traits) { traits.login_class = 0; });
  REQUIRE(rig.Becomes(LunHealth::kHealthy, seconds(60)));
}

}  // namespace
}  // namespace lunkeeper
