#include "base/tcp_prober.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <future>
#include <optional>
#include <vector>

#include "base/testing/empty_network.h"

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

// None: there was no answer at all.
std::optional<ProbeResult> Ask(const std::string& address, uint16_t port) {
  auto promise = std::make_shared<std::promise<ProbeResult>>();
  auto answer = promise->get_future();
  const auto prober = MakeProber();
  prober->Probe(address, port, [promise](ProbeResult result) { promise->set_value(result); });
  if (answer.wait_for(std::chrono::seconds(5)) != std::future_status::ready) return std::nullopt;
  return answer.get();
}

}  // namespace

TEST_CASE("a kernel that accepts or refuses lives; one that says nothing does not") {
  SilentListener listener;
  CHECK(Ask("127.0.0.1", listener.port()) == ProbeResult::kAccepted);
  uint16_t closed = 0;
  {
    const SilentListener gone;
    closed = gone.port();
  }
  CHECK(Ask("127.0.0.1", closed) == ProbeResult::kRefused);
  listener.FillQueue();
  CHECK(Ask("127.0.0.1", listener.port()) == ProbeResult::kUnanswered);
}

TEST_CASE("that there is no way to a machine is told apart from its silence") {
  testing::InEmptyNetwork([] {
    CHECK(Ask("10.9.8.7", 1) == ProbeResult::kNoRoute);
    REQUIRE(std::system("ip link set dev lo up && ip route add unreachable 10.9.8.0/24") == 0);
    CHECK(Ask("10.9.8.7", 1) == ProbeResult::kUnanswered);  // as a router says where nobody has the address
    CHECK(Ask("127.0.0.1", 1) == ProbeResult::kRefused);
  });
}

TEST_CASE("what we could not ask is no answer at all") {
  const auto prober = MakeProber();
  bool called = false;
  prober->Probe("not a number", 1, [&](ProbeResult) { called = true; });
  CHECK_FALSE(called);
  // A firewall of this machine, say, refuses to send it.
  testing::InEmptyNetwork([] {
    REQUIRE(std::system("ip link set dev lo up && ip route add prohibit 10.9.8.0/24") == 0);
    CHECK(Ask("10.9.8.7", 1) == std::nullopt);
  });
}

}  // namespace lunkeeper
