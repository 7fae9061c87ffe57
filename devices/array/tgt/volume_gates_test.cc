#include "devices/array/tgt/volume_gates.h"

#include <catch2/catch.hpp>
#include <thread>

#include "absl/time/clock.h"
#include "base/testing/wall_clock.h"

namespace lunkeeper {
namespace {

const VolumeId kVolume("v"), kOther("w");

absl::Time Soon() { return absl::Now() + absl::Milliseconds(20); }
absl::Time Late() { return absl::Now() + absl::Seconds(20); }

TEST_CASE("one passes a volume's gate at a time, and other volumes' gates are open") {
  VolumeGates gates;
  auto inside = gates.Enter(kVolume, absl::InfinitePast());
  REQUIRE(inside.has_value());
  CHECK_FALSE(gates.Enter(kVolume, absl::InfinitePast()).has_value());
  CHECK_FALSE(gates.Enter(kVolume, Soon()).has_value());
  CHECK(gates.Enter(kOther, absl::InfinitePast()).has_value());
  std::thread waiter([&] { CHECK(gates.Enter(kVolume, Late()).has_value()); });
  inside.reset();
  waiter.join();
}

TEST_CASE("a line is served in its order, once for each change") {
  VolumeGates gates;
  VolumeGates::Place first(&gates, kVolume);
  auto second = std::make_unique<VolumeGates::Place>(&gates, kVolume);
  CHECK_FALSE(second->Enter(Soon()).has_value());
  CHECK(first.Enter(Late()).has_value());
  // It was in and went out without a change: it waits for one.
  CHECK_FALSE(first.Enter(Soon()).has_value());
  gates.WakeWaiters(kVolume);
  CHECK(first.Enter(Late()).has_value());
  CHECK_FALSE(second->Enter(Soon()).has_value());
}

TEST_CASE("who leaves the line lets the next one go") {
  VolumeGates gates;
  auto first = std::make_unique<VolumeGates::Place>(&gates, kVolume);
  VolumeGates::Place second(&gates, kVolume);
  std::thread waiter([&] { CHECK(second.Enter(Late()).has_value()); });
  first.reset();
  waiter.join();
}

TEST_CASE("a call waits at a gate no longer because the clock was set back") {
  VolumeGates gates;
  VolumeGates::Place place(&gates, kVolume);
  auto inside = gates.Enter(kVolume, absl::InfinitePast());
  const bool ended = testing::EndsThoughClockIsSetBack(
      [&] {
        CHECK_FALSE(place.Enter(Soon()).has_value());
        CHECK_FALSE(gates.Enter(kVolume, Soon()).has_value());
      },
      [&] { inside.reset(); });
  CHECK(ended);
}

}  // namespace
}  // namespace lunkeeper
