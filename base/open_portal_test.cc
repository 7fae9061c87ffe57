#include "base/open_portal.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "base/testing/silent_port.h"
#include "base/testing/wall_clock.h"

namespace lunkeeper {
namespace {

TEST_CASE("a portal is open when it takes connections, whatever the others do") {
  testing::SilentPort open, closed, silent;
  silent.FallSilent();
  const std::vector<std::string> others = {closed.portal(), silent.portal(), "storage-2:3260", ""};
  REQUIRE_FALSE(FindOpenPortal({}, absl::Hours(1)));
  REQUIRE_FALSE(FindOpenPortal({closed.portal()}, absl::Hours(1)));  // at once
  REQUIRE_FALSE(FindOpenPortal(others, absl::Milliseconds(100)));
  std::vector<std::string> all = others;
  all.push_back(open.portal());
  open.Freeze();
  REQUIRE(FindOpenPortal(all, absl::Hours(1)) == open.portal());  // without waiting for the silent one
  REQUIRE(ListOpenPortals(all, absl::Milliseconds(100)) == std::set<std::string>{open.portal()});
  closed.Freeze();
  REQUIRE(ListOpenPortals(all, absl::Milliseconds(100)) ==
          std::set<std::string>{open.portal(), closed.portal()});
}

// To ask a name server takes as long as that likes.
TEST_CASE("a portal that is a name is not asked for, also where the name is known") {
  testing::SilentPort open;
  open.Freeze();
  const std::string portal = open.portal();
  REQUIRE_FALSE(FindOpenPortal({"localhost" + portal.substr(portal.find(':'))}, absl::Hours(1)));
}

TEST_CASE("a portal that is slow to answer is waited for, although others have answered") {
  testing::SilentPort slow, quick, closed;
  quick.Freeze();
  slow.FallSilent();
  const std::set<unsigned> before = slow.Attempts();
  std::atomic<bool> is_over = false;
  std::thread answers([&] {
    while (slow.Attempts() == before && !is_over) std::this_thread::yield();
    slow.Freeze();
  });
  const auto open = ListOpenPortals({closed.portal(), slow.portal(), quick.portal()}, absl::Hours(1));
  is_over = true;
  answers.join();
  REQUIRE(open == std::set<std::string>{slow.portal(), quick.portal()});
}

// What refuses in the middle ends one wait, and begins the next one.
TEST_CASE("a clock that is set back while portals are asked does not prolong it") {
  testing::SilentPort silent, refuses;
  silent.FallSilent();
  refuses.FallSilent();
  std::optional<testing::WallClockAhead> ahead(absl::Hours(1));
  testing::AwaitAbseilsClock();
  auto asked = std::async(std::launch::async, [&] {
    return ListOpenPortals({silent.portal(), refuses.portal()}, absl::Seconds(8));
  });
  ahead.reset();
  testing::AwaitAbseilsClock();
  refuses.Refuse();
  const bool ended = asked.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
  silent.Refuse();
  REQUIRE(ended);
  REQUIRE(asked.get().empty());
}

}  // namespace
}  // namespace lunkeeper
