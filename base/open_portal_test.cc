#include "base/open_portal.h"

#include <catch2/catch.hpp>

#include "base/testing/silent_port.h"

namespace lunkeeper {
namespace {

TEST_CASE("a portal is open when it takes connections, whatever the others do") {
  testing::SilentPort open, closed, silent;
  silent.FallSilent();
  const std::vector<std::string> others = {closed.portal(), silent.portal(), "storage-2:3260", ""};
  REQUIRE_FALSE(FindOpenPortal({}, absl::Minutes(1)));
  REQUIRE_FALSE(FindOpenPortal({closed.portal()}, absl::Minutes(1)));  // at once
  REQUIRE_FALSE(FindOpenPortal(others, absl::Milliseconds(100)));
  std::vector<std::string> all = others;
  all.push_back(open.portal());
  open.Freeze();
  REQUIRE(FindOpenPortal(all, absl::Minutes(1)) == open.portal());
  REQUIRE(ListOpenPortals(all, absl::Milliseconds(100)) == std::set<std::string>{open.portal()});
  closed.Freeze();
  REQUIRE(ListOpenPortals(all, absl::Milliseconds(100)) ==
          std::set<std::string>{open.portal(), closed.portal()});
}

}  // namespace
}  // namespace lunkeeper
