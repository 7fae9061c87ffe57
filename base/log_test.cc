#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <string>

#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

// Standard error is a pipe, and the test its reader.
class LogReader {
 public:
  LogReader() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    reads_.Reset(ends[0]);
    writes_.Reset(ends[1]);
    ::fcntl(reads_.get(), F_SETFL, O_NONBLOCK);
    ::dup2(writes_.get(), STDERR_FILENO);
  }
  ~LogReader() { ::dup2(saved_.get(), STDERR_FILENO); }
  void FillPipe() {
    ::fcntl(writes_.get(), F_SETFL, O_NONBLOCK);
    while (::write(writes_.get(), "....", 4) > 0 || ::write(writes_.get(), ".", 1) > 0) {
    }
    ::fcntl(writes_.get(), F_SETFL, 0);
  }
  std::string ReadAll() {
    std::string all;
    char some[4096];
    for (ssize_t got = 0; (got = ::read(reads_.get(), some, sizeof(some))) > 0;) {
      all.append(some, static_cast<size_t>(got));
    }
    return all;
  }

 private:
  const UniqueFd saved_{::dup(STDERR_FILENO)};
  UniqueFd reads_, writes_;
};

TEST_CASE("a log that nobody reads stops nobody, and what it lacks is said later") {
  LogReader reader;
  reader.FillPipe();
  auto logged = std::async(std::launch::async, [] {
    for (int i = 0; i < 5; ++i) LogInfo("test", "nobody reads this");
  });
  const bool ended = logged.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  std::string all = reader.ReadAll();
  if (!ended) logged.wait();
  CHECK(ended);
  LogInfo("test", "somebody reads this");
  all += reader.ReadAll();
  CHECK(all.find("nobody reads this") == std::string::npos);
  CHECK(all.find("INFO test: somebody reads this\n") != std::string::npos);
  CHECK(all.find("WARN log: records were left out, since nobody read them records=5\n") != std::string::npos);
  LogInfo("test", "and goes on");
  CHECK(reader.ReadAll().find("left out") == std::string::npos);
}

TEST_CASE("a record that is larger than the pipe is cut, and the next one begins a line") {
  LogReader reader;
  LogInfo("test", std::string(200'000, 'x'));
  std::string all = reader.ReadAll();
  LogInfo("test", "the next");
  all += reader.ReadAll();
  CHECK(all.find("x\n20") != std::string::npos);
  CHECK(all.find(" INFO test: the next\n") != std::string::npos);
}

}  // namespace
}  // namespace lunkeeper
