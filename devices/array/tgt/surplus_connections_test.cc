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
  size_t CountOpen() const {
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
