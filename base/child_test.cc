#include "base/child.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/time/clock.h"

namespace lunkeeper {
namespace {

ChildCall About(const std::string& subject) {
  return {.subject = subject, .deadline = absl::Now() + absl::Seconds(20)};
}

TEST_CASE("a call in a child brings back bytes or an errno") {
  const auto bytes =
      CallInChild(About("test"), [](int out) { return ::write(out, "abc", 3) == 3 ? 0 : errno; });
  REQUIRE(bytes.ok());
  CHECK(bytes->output == "abc");
  CHECK(!bytes->passed);
  const auto error = CallInChild(About("look at /x"), [](int) { return ENOENT; });
  CHECK(error.status().code() == absl::StatusCode::kNotFound);
  CHECK(std::string(error.status().message()).find("look at /x") != std::string::npos);
}

TEST_CASE("a call in a child passes a descriptor back with its bytes") {
  const auto answer = CallInChild(About("open a file"), [](int out) {
    return SendWithDescriptor(out, "abc", 3, ::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  });
  REQUIRE(answer.ok());
  CHECK(answer->output == "abc");
  REQUIRE(answer->passed);
  char byte = 'x';
  CHECK(::read(answer->passed.get(), &byte, 1) == 1);
  CHECK(byte == 0);
  CHECK((::fcntl(answer->passed.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a call in a child has none of its caller's files but the one it is to keep") {
  const int kept = ::open("/dev/null", O_RDONLY);
  const int other = ::open("/dev/null", O_RDONLY);
  const auto work = [&](int) {
    return ::fcntl(kept, F_GETFD) >= 0 && ::fcntl(other, F_GETFD) < 0 ? 0 : EINVAL;
  };
  ChildCall call = About("look at files");
  call.lent = kept;
  CHECK(CallInChild(std::move(call), work).ok());
  CHECK(
      CallInChild(About("look at files"), [&](int) { return ::fcntl(kept, F_GETFD) < 0 ? 0 : EINVAL; }).ok());
  ::close(kept);
  ::close(other);
}

TEST_CASE("a descriptor that is given to a child is the child's alone") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ChildCall call = About("close the last copy");
  call.given.Reset(ends[1]);
  const int given = ends[1];
  const UniqueFd reader(ends[0]);
  CHECK(CallInChild(std::move(call), [given](int) { return ::write(given, "x", 1) == 1 ? 0 : errno; }).ok());
  char bytes[2];
  CHECK(::read(reader.get(), bytes, 2) == 1);
  CHECK(::read(reader.get(), bytes, 2) == 0);  // the end: nobody has the other end any more
}

TEST_CASE("a call in a child that never returns ends at its deadline") {
  const absl::Time start = absl::Now();
  const auto result = CallInChild({.subject = "wait", .deadline = start + absl::Milliseconds(100)},
                                  [](int) { return ::pause(); });
  CHECK(result.status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(absl::Now() - start < absl::Seconds(5));
}

}  // namespace
}  // namespace lunkeeper
