#include "base/keyed_lock.h"

#include <catch2/catch.hpp>

namespace lunkeeper {
namespace {

TEST_CASE("a key is held by one at a time, and free again when its guard goes") {
  KeyedLock locks;
  {
    auto first = locks.TryLock("a");
    REQUIRE(first);
    CHECK_FALSE(locks.TryLock("a"));
    CHECK(locks.TryLock("b"));
    const KeyedLock::Guard moved = *std::move(first);
    first.reset();
    CHECK_FALSE(locks.TryLock("a"));
  }
  CHECK(locks.TryLock("a"));
}

}  // namespace
}  // namespace lunkeeper
