// One host without credentials opens connections to a real tgtd's portal. Needs root.
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/testing/tcp_client.h"
#include "devices/array/tgt/surplus_connections.h"
#include "devices/array/tgt/testing/several_tgtds.h"

namespace lunkeeper::testing {
namespace {

constexpr char kStranger[] = "127.0.0.66";

// So few that a test can use them up.
constexpr rlim_t kDescriptors = 3000;

// The header of a login that announces 8000 bytes, and the most of them: tgtd waits for the rest for ever.
std::string HalfLogin() {
  std::string header(48, '\0');
  header[0] = 0x43, header[6] = 0x1f, header[7] = 0x40;
  return header + std::string(7000, 'x');
}

// All of a login that asks for no target, and offers to prove itself by this, or nothing: and then these
// keys.
std::string DiscoveryLogin(const std::string& method = "None", const std::string& more_keys = "") {
  constexpr char kKeys[] =
      "InitiatorName=iqn.2026-11.io.lunkeeper:stranger\0SessionType=Discovery\0AuthMethod=";
  const std::string keys_before(kKeys, sizeof kKeys - 1);
  std::string keys = absl::StrCat(keys_before, method, std::string(1, '\0'), more_keys);
  std::string header(48, '\0');
  header[0] = 0x43, header[1] = static_cast<char>(0x81);
  header[6] = static_cast<char>(keys.size() >> 8), header[7] = static_cast<char>(keys.size());
  header[8] = 0x40, header[13] = 1;
  keys.resize((keys.size() + 3) / 4 * 4);
  return header + keys;
}

// For these 1.2 kB tgtd says 6 kB: that it knows no such key.
std::string TalkativeLogin() {
  std::string keys;
  for (int i = 0; i < 370; ++i) keys.append("k=\0", 3);
  return DiscoveryLogin("CHAP", keys);
}

struct Flooded : Several {
  Flooded() : Several(1) {
    const rlimit few = {kDescriptors, kDescriptors};
    REQUIRE(::prlimit(Tgtd(0), RLIMIT_NOFILE, &few, nullptr) == 0);
  }
  void Flood(const std::string& from, size_t count, const std::string& words = "") {
    for (size_t i = 0; i < count; ++i) {
      strangers.push_back(ConnectTo(PortOf(0), from.c_str()));
      if (!words.empty()) REQUIRE(::send(strangers.back().get(), words.data(), words.size(), 0) > 0);
    }
  }
  // Each of these is answered more than a session that does little.
  void FloodByLogins(size_t count) {
    Flood("127.0.0.1", count, TalkativeLogin());
    std::string answer(5000, '\0');
    for (const UniqueFd& each : strangers)
      REQUIRE(::recv(each.get(), answer.data(), answer.size(), MSG_WAITALL) > 4500);
  }
  size_t CountOpen() {
    std::string left(10'000, '\0');
    for (const UniqueFd& each : strangers) ::recv(each.get(), left.data(), left.size(), MSG_DONTWAIT);
    return static_cast<size_t>(
        std::ranges::count_if(strangers, [](const auto& fd) { return !IsClosed(fd); }));
  }
  uint64_t CountEnded() const { return array->MeasureGrants()->ended_connections; }

  std::vector<UniqueFd> strangers;
};

TEST_CASE_METHOD(Flooded, "a stranger with idle connections keeps no fence and no login from a tgtd") {
  const std::vector<Used> used = UseSome(3);
  Flood(kStranger, 2 * kDescriptors);
  const auto view = Cluster();
  CHECK(Eventually([&] { return Fence(*view, kNode) == absl::OkStatus(); }, absl::Seconds(10)));
  const std::vector<Used> others = UseSome(2, kOther);
  CHECK(Eventually([&] { return CountOpen() <= kSpareConnections + 100; }, absl::Seconds(10)));
  CHECK(CountEnded() >= kDescriptors - kSpareConnections - 100);
}

TEST_CASE_METHOD(Flooded, "half a login does not save a connection, and sessions of its address go on") {
  const std::vector<Used> used = UseSome(3);
  Flood("127.0.0.1", 2000, std::string(24, 'C'));
  CHECK(Eventually([&] { return CountOpen() <= kSpareConnections + 100; }, absl::Seconds(10)));
  for (const Used& each : used) CHECK(each.session->Write(1, 'y'));
}

TEST_CASE_METHOD(Flooded, "half logins of many bytes at a node's own address end none of its sessions") {
  const std::vector<Used> used = UseSome(3);
  Flood("127.0.0.1", 700, HalfLogin());
  CHECK(Eventually([&] { return CountOpen() <= kSpareConnections + 100; }, absl::Seconds(10)));
  for (const Used& each : used) CHECK(each.session->Write(1, 'y'));
  const auto session = PlainInitiator::Login(used[0].connection);
  REQUIRE(session.ok());
  absl::SleepFor(absl::Seconds(3));  // which is some counts of them
  CHECK((*session)->Write(1, 'z'));
}

TEST_CASE_METHOD(Flooded, "logins that have much answered end no idle session of their address") {
  const std::vector<Used> used = UseSome(3);
  if (GENERATE(false, true)) {  // an agent that starts has not seen who was there before
    array.reset();
    FloodByLogins(700);
    REQUIRE(Open() == absl::OkStatus());
  } else {
    absl::SleepFor(absl::Seconds(3));  // which is some looks at them
    FloodByLogins(700);
  }
  CHECK(Eventually([&] { return CountOpen() <= kSpareConnections + 100; }, absl::Seconds(10)));
  for (const Used& each : used) CHECK(each.session->Write(1, 'y'));
}

TEST_CASE_METHOD(Flooded, "a session that is new and busy gets a place beside those of talkative logins") {
  const std::vector<Used> used = UseSome(1);
  FloodByLogins(700);
  CHECK(Eventually([&] { return CountOpen() <= kSpareConnections + 100; }, absl::Seconds(10)));
  CHECK(Eventually([&] {  // a look may come in the first moment of a session
    const auto session = PlainInitiator::Login(used[0].connection);
    for (const absl::Time end = absl::Now() + absl::Seconds(3); session.ok() && absl::Now() < end;)
      if (!(*session)->Read(1)) return false;
    return session.ok();
  }));
}

TEST_CASE_METHOD(Flooded, "an agent that starts beside a flood ends it first, and fences") {
  const std::vector<Used> used = UseSome(3);
  array.reset();
  Flood(kStranger, 2 * kDescriptors);
  // At the first try, or the next ones: tgtd needs seconds to close so many.
  REQUIRE(Eventually([&] { return Open() == absl::OkStatus(); }));
  const auto view = Cluster();
  CHECK(Eventually([&] { return Fence(*view, kNode) == absl::OkStatus(); }, absl::Seconds(10)));
}

TEST_CASE_METHOD(Flooded, "who names no target is refused, and told of none") {
  const std::vector<Used> used = UseSome(1);
  Flood(kStranger, 1, DiscoveryLogin());
  std::string answer(48, '\0');
  REQUIRE(::recv(strangers[0].get(), answer.data(), answer.size(), MSG_WAITALL) == 48);
  CHECK(answer[0] == 0x23);  // a login's
  CHECK(answer[36] == 2);    // the initiator's fault
}

TEST_CASE_METHOD(Flooded, "connections of several addresses together leave half of the descriptors") {
  const std::vector<Used> used = UseSome(3);
  for (const int host : {66, 67, 68, 69, 70}) Flood(absl::StrCat("127.0.0.", host), 500);
  CHECK(Eventually([&] { return CountOpen() <= kDescriptors / 2; }, absl::Seconds(10)));
  for (const Used& each : used) CHECK(each.session->Write(1, 'y'));
}

TEST_CASE_METHOD(Flooded, "as many connections as an address may have are left alone") {
  Flood(kStranger, kSpareConnections);
  const absl::Time until = absl::Now() + absl::Seconds(3);
  while (absl::Now() < until) REQUIRE(CountOpen() == kSpareConnections);
  CHECK(CountEnded() == 0);
}

}  // namespace
}  // namespace lunkeeper::testing
