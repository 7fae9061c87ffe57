#include "base/check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <string>

namespace lunkeeper {
namespace {

struct Ended {
  int status = 0;
  std::string said;
};

// Runs `body` in a child whose stderr is read.
template <class Body>
Ended RunInChild(Body body) {
  std::array<int, 2> pipe_ends;
  REQUIRE(::pipe(pipe_ends.data()) == 0);
  const auto child = ::fork();
  if (child == 0) {
    ::dup2(pipe_ends[1], STDERR_FILENO);
    ::signal(SIGABRT, SIG_DFL);  // Catch2 has a handler of its own, which would print a report
    body();
    ::_exit(0);
  }
  ::close(pipe_ends[1]);
  Ended ended;
  std::array<char, 256> buffer;
  for (ssize_t got; (got = ::read(pipe_ends[0], buffer.data(), buffer.size())) > 0;)
    ended.said.append(buffer.data(), got);
  ::close(pipe_ends[0]);
  REQUIRE(::waitpid(child, &ended.status, 0) == child);
  return ended;
}

TEST_CASE("a check that fails says where and what would be broken, and aborts") {
  const auto ended = RunInChild([] { LK_CHECK(1 + 1 == 3, "arithmetic"); });
  CHECK(WIFSIGNALED(ended.status));
  CHECK(WTERMSIG(ended.status) == SIGABRT);
  CHECK(ended.said.find("check_test.cc:") != std::string::npos);
  CHECK(ended.said.find("check failed: 1 + 1 == 3: arithmetic") != std::string::npos);
}

TEST_CASE("a check that holds does nothing, and evaluates its condition once") {
  int evaluated = 0;
  LK_CHECK(++evaluated == 1, "evaluated twice");
  CHECK(evaluated == 1);
}

}  // namespace
}  // namespace lunkeeper
