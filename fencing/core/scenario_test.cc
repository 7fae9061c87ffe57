// Runs every golden scenario: what the core does has to be what its file says, line by line. With REGOLD=1
// the files are written anew instead; do that only when each changed line is understood.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "fencing/core/testing/scripted_world.h"

namespace lunkeeper::fencing {
namespace {

namespace fs = std::filesystem;
constexpr char kLine[] = "---\n";

std::string Read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::set<fs::path> Scenarios() {
  std::set<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(LUNKEEPER_SCENARIOS))
    if (entry.path().extension() == ".txt") paths.insert(entry.path());
  return paths;
}

TEST_CASE("every golden scenario does what its file says") {
  const auto paths = Scenarios();
  REQUIRE(paths.size() >= 20);
  for (const auto& path : paths) {
    const auto text = Read(path);
    const auto cut = text.find(kLine);
    const auto script = text.substr(0, cut);
    const auto done = ScriptedWorld::Run(script);
    if (std::getenv("REGOLD")) {
      std::ofstream(path) << script << kLine << done;
      continue;
    }
    INFO(path.filename());
    REQUIRE(cut != std::string::npos);
    CHECK(done == text.substr(cut + sizeof kLine - 1));
  }
}

TEST_CASE("a scenario runs the same way twice") {
  const auto text = Read(fs::path(LUNKEEPER_SCENARIOS) / "row1_power_loss.txt");
  const auto script = text.substr(0, text.find(kLine));
  CHECK(ScriptedWorld::Run(script) == ScriptedWorld::Run(script));
}

}  // namespace
}  // namespace lunkeeper::fencing
