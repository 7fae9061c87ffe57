#include "fencing/core/uid.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace lunkeeper::fencing {

TEST_CASE("a uid is the text that it was given, whether that is a UUID or not, and in order of texts") {
  std::vector<std::string> texts = {"",
                                    "a",
                                    "node-a-uid",
                                    "00000000-0000-0000-0000-000000000000",
                                    "00000000-0000-0000-0000-000000000001",
                                    "0b5a1c2d-3e4f-4a6b-8c9d-0e1f2a3b4c5d",
                                    "0b5a1c2d-3e4f-4a6b-8c9d-0e1f2a3b4c5e",
                                    "0B5A1C2D-3E4F-4A6B-8C9D-0E1F2A3B4C5D",
                                    "0b5a1c2d-3e4f-4a6b-8c9d-0e1f2a3b4c5g",
                                    "0b5a1c2d-3e4f-4a6b-8c9da0e1f2a3b4c5d",
                                    "0b5a1c2da3e4f-4a6b-8c9d-0e1f2a3b4c5d",
                                    "0b5a1c2d-3e4f-4a6b-8c9d-0e1f2a3b4c5d0",
                                    "ffffffff-ffff-ffff-ffff-ffffffffffff"};
  std::sort(texts.begin(), texts.end());
  for (const auto& a : texts) {
    CHECK(Uid(a).value() == a);
    CHECK(Uid(a).empty() == a.empty());
    for (const auto& b : texts) {
      CHECK((Uid(a) == Uid(b)) == (a == b));
      CHECK((Uid(a) < Uid(b)) == (a < b));
    }
  }
  CHECK(sizeof(Uid) <= 24);
}

}  // namespace lunkeeper::fencing
