#include "base/subprocess.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <thread>

#include "absl/time/clock.h"
#include "base/testing/test_host.h"
#include "base/testing/wall_clock.h"

namespace lunkeeper {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

TEST_CASE("a command's exit code and output come back") {
  const auto result = RunCommand({"sh", "-c", "echo out; echo err >&2; exit 3"}, Soon());
  REQUIRE(result.ok());
  CHECK(result->exit_code == 3);
  CHECK(result->output == "out\nerr\n");
}

TEST_CASE("a program that is not there is named") {
  const auto result = RunCommand({"no-such-program"}, Soon());
  CHECK(result.status().code() == absl::StatusCode::kNotFound);
  CHECK(std::string(result.status().message()).find("no-such-program") != std::string::npos);
}

TEST_CASE("only the end of a long output is kept") {
  const auto result = RunCommand({"sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x; echo end"}, Soon());
  REQUIRE(result.ok());
  CHECK(result->output.size() == 4096);
  CHECK(result->output.ends_with("xend\n"));
}

TEST_CASE("a command past its deadline is killed with all its children") {
  char file[] = "/tmp/lk-subprocess-XXXXXX";
  ::close(::mkstemp(file));
  const absl::Time start = absl::Now();
  const auto result = RunCommand({"sh", "-c", std::string("sleep 1000 & echo $! > ") + file + "; wait"},
                                 start + absl::Milliseconds(300));
  CHECK(result.status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(absl::Now() - start < absl::Seconds(5));
  pid_t grandchild = 0;
  std::ifstream(file) >> grandchild;
  ::unlink(file);
  REQUIRE(grandchild > 0);
  // Its new parent collects it; until then it is a zombie, which answers to kill but runs nothing.
  std::string state;
  while (absl::Now() - start < absl::Seconds(5)) {
    std::string pid, name;
    state.clear();
    std::ifstream("/proc/" + std::to_string(grandchild) + "/stat") >> pid >> name >> state;
    if (state.empty() || state == "Z") break;
    std::this_thread::yield();
  }
  CHECK((state.empty() || state == "Z"));
}

TEST_CASE("a command that leaves a child with its output open does not hold up its caller") {
  const auto result = RunCommand({"sh", "-c", "sleep 3 & echo done"}, Soon());
  REQUIRE(result.ok());
  CHECK(result->output == "done\n");
}

TEST_CASE("a command sees none of its caller's files") {
  const int open_here = ::open("/dev/null", O_RDONLY);
  const auto result = RunCommand({"sh", "-c", "ls /proc/self/fd | wc -l"}, Soon());
  ::close(open_here);
  REQUIRE(result.ok());
  CHECK(result->output == "4\n");  // 0, 1, 2 and the directory itself
}

TEST_CASE("a command is ended in time although the clock is set back meanwhile") {
  const testing::TempDir directory;
  std::optional<testing::WallClockAhead> ahead(absl::Hours(1));
  testing::AwaitAbseilsClock();
  const absl::Time deadline = absl::Now() + absl::Seconds(8);  // longer than Abseil takes to see a change
  auto ran = std::async(std::launch::async, [&] {
    return RunCommand({"sh", "-c", "touch $0; exec sleep 20", directory / "begun"}, deadline).status();
  });
  REQUIRE(testing::Eventually([&] { return std::filesystem::exists(directory / "begun"); }));
  ahead.reset();
  testing::AwaitAbseilsClock();
  CHECK(absl::IsDeadlineExceeded(ran.get()));
}

}  // namespace
}  // namespace lunkeeper
