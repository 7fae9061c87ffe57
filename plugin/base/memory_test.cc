#include "plugin/base/memory.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

namespace lunkeeper {
namespace {

size_t ResidentPages() {
  size_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident;
}

int zeroed[1024];
std::string initialised = "as it was";

}  // namespace

TEST_CASE("pages of program files are let go, and the program and its data go on") {
  zeroed[512] = 7;
  const size_t before = ResidentPages();
  REQUIRE(ReleaseProgramPages() > 0);
  CHECK(ResidentPages() < before);
  CHECK(zeroed[512] == 7);
  CHECK(initialised == "as it was");
  CHECK(std::to_string(1.5) == "1.500000");
}

}  // namespace lunkeeper
