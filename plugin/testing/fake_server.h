#pragma once
// A process of `lunkeeper-fake`: the whole server over fakes, for tests that talk to it through its socket.
// LK_FAKE_BINARY names the program. Not thread-safe.

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio.hpp>
#include <filesystem>
#include <string>

#include "base/testing/test_host.h"

namespace lunkeeper::testing {

// The whole answer to a GET.
inline std::string Page(uint16_t port, const std::string& path) {
  boost::asio::ip::tcp::iostream stream;
  stream.expires_after(std::chrono::seconds(10));
  stream.connect(boost::asio::ip::tcp::endpoint(boost::asio::ip::address_v4::loopback(), port));
  stream << "GET " << path << " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" << std::flush;
  return {std::istreambuf_iterator<char>(stream), {}};
}

// On a socket of this process, so one at a time.
class FakeServer {
 public:
  explicit FakeServer(const std::string& extra = "--log-format=text") {
    const std::string endpoint = "--endpoint=unix://" + socket;
    const std::string metrics = "--metrics-address=127.0.0.1:" + std::to_string(port);
    pid_ = ::fork();
    if (pid_ == 0) {
      const int null = ::open("/dev/null", O_WRONLY);
      ::dup2(null, STDERR_FILENO);
      ::setenv("TMPDIR", temp_.path().c_str(), 1);  // what it leaves when it is killed goes with us
      ::execl(LK_FAKE_BINARY, LK_FAKE_BINARY, endpoint.c_str(), metrics.c_str(), extra.c_str(),
              static_cast<char*>(nullptr));
      ::_exit(127);
    }
  }
  ~FakeServer() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    std::filesystem::remove(socket);
  }

  bool AwaitReady() {
    return Eventually([&] { return Page(port, "/readyz").find("200 OK") != std::string::npos; });
  }
  void Signal(int number) { ::kill(pid_, number); }
  // The exit code; -1 if a signal ended it.
  int Wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  const std::string socket =
      (std::filesystem::temp_directory_path() / ("lk-serve-" + std::to_string(::getpid()) + ".sock"))
          .string();
  const uint16_t port = FreePort();

 private:
  const TempDir temp_;
  pid_t pid_ = 0;
};

}  // namespace lunkeeper::testing
