// What is known of images that a tgtd opens, without a tgtd.
#include "devices/array/tgt/image_openings.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/testing/test_host.h"

namespace lunkeeper::testing {

TEST_CASE("tgtd is ended for an image that it closes for long, also one that it was ended for before") {
  ImageOpenings openings;
  for (int time = 0; time < 2; ++time) {
    CHECK(openings.BeginClosing(1) == absl::OkStatus());
    openings.EndOpening(1, absl::UnavailableError("no answer"));
    absl::SleepFor(absl::Seconds(6));
    CHECK(openings.BlameImage());
  }
}

// As a target that is held: before its image is opened, what may be open of it is closed.
TEST_CASE("an image that tgtd hung on is not opened early since there was nothing to close") {
  ImageOpenings openings;
  REQUIRE(openings.BeginOpening(1) == absl::OkStatus());
  openings.EndOpening(1, absl::UnavailableError("no answer"));
  absl::SleepFor(absl::Seconds(6));
  REQUIRE(openings.BlameImage());
  REQUIRE(openings.BeginClosing(1) == absl::OkStatus());
  openings.EndOpening(1, absl::NotFoundError("no such LUN"));
  CHECK(absl::IsUnavailable(openings.BeginOpening(1)));
}

TEST_CASE("it is known beforehand that an image is not opened, for tgtd hung on it") {
  TempDir directory;
  std::ofstream(directory / "opening") << 7;
  ImageOpenings openings(directory / "opening");
  CHECK(openings.CheckNotBlamed(7) == absl::OkStatus());
  REQUIRE(openings.BlameImage());
  CHECK(absl::IsUnavailable(openings.CheckNotBlamed(7)));
  CHECK(openings.CheckNotBlamed(8) == absl::OkStatus());
}

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

TEST_CASE("the image that tgtd hangs on is remembered by the next agent, until tgtd answers") {
  TempDir directory;
  const std::string mark = directory / "opening";
  {
    ImageOpenings openings(mark);
    REQUIRE(openings.BeginOpening(7) == absl::OkStatus());
  }
  SECTION("it is blamed at once, and still known if that agent dies before it has ended tgtd") {
    ImageOpenings next(mark);
    CHECK(next.BlameImage());
    CHECK(absl::IsUnavailable(next.BeginOpening(7)));
    CHECK(ImageOpenings(mark).BlameImage());
    next.NoteAnswer();
    CHECK_FALSE(ImageOpenings(mark).BlameImage());
  }
  SECTION("tgtd answers") {
    ImageOpenings next(mark);
    next.NoteAnswer();
    CHECK_FALSE(next.BlameImage());
    CHECK_FALSE(std::filesystem::exists(mark));
  }
  SECTION("an agent that was killed before it had written which") {
    std::ofstream(mark) << "";
    CHECK_FALSE(ImageOpenings(mark).BlameImage());
  }
}

TEST_CASE("an image that was opened, or not, leaves nothing for the next agent") {
  TempDir directory;
  const std::string mark = directory / "opening";
  ImageOpenings openings(mark);
  REQUIRE(openings.BeginOpening(7) == absl::OkStatus());
  CHECK(std::filesystem::exists(mark));
  openings.EndOpening(7, GENERATE(absl::OkStatus(), absl::InternalError("no")));
  CHECK_FALSE(std::filesystem::exists(mark));
}

TEST_CASE("an image that tgtd hung on is tried again early once the store is silent about it no more") {
  using std::chrono::seconds;
  TempDir directory;
  std::ofstream(directory / "opening") << 7;
  ImageOpenings openings(directory / "opening");
  REQUIRE(openings.BlameImage());
  openings.NoteAnswer();
  auto now = std::chrono::steady_clock::now();
  const auto look = [&](seconds took) {
    openings.NoteLook(7, now, now + took);
    now += took + seconds(1);
  };
  SECTION("it was silent, and answers for long enough") {
    look(seconds(4));
    for (int i = 0; i < 11; ++i) {
      CHECK(absl::IsUnavailable(openings.BeginOpening(7)));
      look(seconds(0));
    }
    CHECK(openings.BeginOpening(7) == absl::OkStatus());
  }
  SECTION("it has answered at once all the time, also before tgtd hung") {
    for (int i = 0; i < 30; ++i) look(seconds(0));
    CHECK(absl::IsUnavailable(openings.BeginOpening(7)));
  }
  SECTION("it is slow in between") {
    look(seconds(4));
    for (int i = 0; i < 30; ++i) look(seconds(i % 5 == 0 ? 2 : 0));
    CHECK(absl::IsUnavailable(openings.BeginOpening(7)));
  }
}

}  // namespace lunkeeper::testing
