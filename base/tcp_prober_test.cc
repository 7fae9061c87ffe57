#include "base/tcp_prober.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <future>
#include <vector>

namespace lunkeeper {
namespace {

// Listens on a free port of loopback, and takes no connection.
struct SilentListener {
  SilentListener() {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(descriptor, reinterpret_cast<sockaddr*>(&address), size);
    ::listen(descriptor, 0);
    ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
  }
  ~SilentListener() {
    ::close(descriptor);
    for (const int each : callers) ::close(each);
  }
  // With its queue full, the kernel drops every further connection attempt.
  void FillQueue() {
    for (int i = 0; i < 8; ++i) {
      callers.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      ::connect(callers.back(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    }
  }
  uint16_t port() const { return ntohs(address.sin_port); }

  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  std::vector<int> callers;
};

std::future_status Ask(const std::string& address, uint16_t port, bool* answered) {
  auto promise = std::make_shared<std::promise<bool>>();
  auto answer = promise->get_future();
  const auto prober = MakeProber();
  prober->Probe(address, port, [promise](bool yes) { promise->set_value(yes); });
  const auto status = answer.wait_for(std::chrono::seconds(5));
  if (status == std::future_status::ready) *answered = answer.get();
  return status;
}

}  // namespace

TEST_CASE("a kernel that accepts or refuses lives; one that says nothing does not") {
  SilentListener listener;
  bool answered = false;
  REQUIRE(Ask("127.0.0.1", listener.port(), &answered) == std::future_status::ready);
  CHECK(answered);
  uint16_t closed = 0;
  {
    const SilentListener gone;
    closed = gone.port();
  }
  answered = false;
  REQUIRE(Ask("127.0.0.1", closed, &answered) == std::future_status::ready);
  CHECK(answered);
  listener.FillQueue();
  REQUIRE(Ask("127.0.0.1", listener.port(), &answered) == std::future_status::ready);
  CHECK_FALSE(answered);
}

TEST_CASE("what we could not ask is no answer at all") {
  const auto prober = MakeProber();
  bool called = false;
  prober->Probe("not a number", 1, [&](bool) { called = true; });
  CHECK_FALSE(called);
}

}  // namespace lunkeeper
