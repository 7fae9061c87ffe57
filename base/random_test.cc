#include "base/random.h"

#include <catch2/catch.hpp>
#include <set>

namespace lunkeeper {

TEST_CASE("random values are of their form, and no two alike") {
  std::set<std::string> digits;
  std::set<std::string> secrets;
  for (int i = 0; i < 1000; ++i) {
    digits.insert(RandomHexDigits());
    secrets.insert(RandomSecret());
  }
  CHECK(digits.size() == 1000);
  CHECK(secrets.size() == 1000);
  for (const std::string& text : digits) {
    CHECK(text.size() == 16);
    CHECK(text.find_first_not_of("0123456789abcdef") == std::string::npos);
  }
  for (const std::string& text : secrets) CHECK(text.size() == 16);
}

}  // namespace lunkeeper
