#include "fencing/core/phase.h"

#include <catch2/catch.hpp>
#include <set>
#include <string_view>

namespace lunkeeper::fencing {

TEST_CASE("each phase has a word of its own, which means it again when it is read") {
  std::set<std::string_view> words;
  for (int number = 0; number <= static_cast<int>(Phase::kCleaning); ++number) {
    const auto phase = static_cast<Phase>(number);
    CHECK(ParsePhase(ToWord(phase)) == phase);
    CHECK_FALSE(std::string_view(ToSentence(phase)).empty());
    words.insert(ToWord(phase));
  }
  CHECK(words.size() == static_cast<size_t>(Phase::kCleaning) + 1);
}

TEST_CASE("a word that nobody knows is a phase that is still to be found") {
  CHECK(ParsePhase("moved; waiting for the node") == Phase::kRequested);
  CHECK(ParsePhase("") == Phase::kRequested);
}

}  // namespace lunkeeper::fencing
