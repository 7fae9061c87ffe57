#include "base/hmac.h"

#include <catch2/catch.hpp>

#include "absl/strings/escaping.h"

namespace lunkeeper {

TEST_CASE("HMAC-SHA256 is that of RFC 4231, test case 2") {
  CHECK(absl::BytesToHexString(HmacSha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST_CASE("two secrets are the same if every byte is") {
  CHECK(IsSameSecret("abc", "abc"));
  CHECK_FALSE(IsSameSecret("abc", "abd"));
  CHECK_FALSE(IsSameSecret("abc", "ab"));
  CHECK(IsSameSecret("", ""));
}

}  // namespace lunkeeper
