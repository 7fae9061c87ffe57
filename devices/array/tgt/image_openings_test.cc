// What is known of images that a tgtd opens, without a tgtd.
#include "devices/array/tgt/image_openings.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "base/testing/test_host.h"

namespace lunkeeper::testing {

TEST_CASE("an image that tgtd has only just begun to open is not blamed when it does not answer") {
  ImageOpenings openings;
  CHECK(openings.BeginOpening(1) == absl::OkStatus());
  CHECK_FALSE(openings.BlameImage());
  openings.EndOpening(1, absl::UnavailableError("no answer"));
  CHECK_FALSE(openings.BlameImage());
  openings.NoteAnswer();
  CHECK(openings.BeginOpening(1) == absl::OkStatus());
}

TEST_CASE("images are opened one after another, and none behind one that may hang") {
  ImageOpenings openings;
  REQUIRE(openings.BeginOpening(1) == absl::OkStatus());
  std::atomic<bool> begun = false;
  absl::Status second;
  std::jthread other([&] {
    second = openings.BeginOpening(2);
    begun = true;
  });
  CHECK_FALSE(Eventually([&] { return begun.load(); }, absl::Milliseconds(100)));
  openings.EndOpening(1, absl::OkStatus());
  other.join();
  CHECK(second == absl::OkStatus());
  openings.EndOpening(2, absl::UnavailableError("no answer"));
  CHECK(absl::IsUnavailable(openings.BeginOpening(3)));
  openings.NoteAnswer();
  CHECK(openings.BeginOpening(3) == absl::OkStatus());
}

}  // namespace lunkeeper::testing
