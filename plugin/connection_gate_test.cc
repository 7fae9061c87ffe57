#include "plugin/connection_gate.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/testing/tcp_client.h"
#include "base/testing/test_host.h"

namespace lunkeeper {
namespace {

using testing::Eventually;

// A gate, and what it hands over, which nobody reads.
struct GateFixture {
  explicit GateFixture(const ConnectionLimits& limits) {
    auto opened = ConnectionGate::Open("127.0.0.1:0", limits, &metrics);
    REQUIRE(opened.ok());
    gate = *std::move(opened);
    gate->Start([this](UniqueFd fd) {
      const absl::MutexLock lock(&mutex);
      handed_over.push_back(std::move(fd));
    });
  }
  size_t count() {
    const absl::MutexLock lock(&mutex);
    return handed_over.size();
  }
  int port() const { return gate->port(); }
  // As gRPC names the peer.
  static std::string NameOf(const UniqueFd& client) {
    sockaddr_in own{};
    socklen_t length = sizeof own;
    REQUIRE(::getsockname(client.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0);
    char text[INET_ADDRSTRLEN];
    return absl::StrCat("ipv4:", ::inet_ntop(AF_INET, &own.sin_addr, text, sizeof text), ":",
                        ntohs(own.sin_port));
  }
  bool HasRefused(const std::string& why) const {
    return metrics.ToText().find(absl::StrCat("lunkeeper_connections_refused_total{why=\"", why, "\"}")) !=
           std::string::npos;
  }

  Metrics metrics{"test"};
  absl::Mutex mutex;
  std::vector<UniqueFd> handed_over;
  std::unique_ptr<ConnectionGate> gate;
};

void Send(const UniqueFd& client, size_t bytes) {
  const std::string data(bytes, 'x');
  static_cast<void>(::send(client.get(), data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

size_t CountOpen(const std::vector<UniqueFd>& clients) {
  return static_cast<size_t>(
      std::count_if(clients.begin(), clients.end(), [](const UniqueFd& each) { return !IsClosed(each); }));
}

// No limit but what a test sets.
ConnectionLimits Loose() { return {.per_address = 10'000, .new_at_once = 10'000, .new_per_second = 10'000}; }

}  // namespace

TEST_CASE("a thousand idle connections of one address take a few places, and another address gets in") {
  ConnectionLimits limits = Loose();
  limits.per_address = 8;
  GateFixture f(limits);
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 1000; ++i) idle.push_back(ConnectTo(f.port()));
  REQUIRE(Eventually([&] { return f.count() == 1000; }));  // the newest one always gets a place
  CHECK(Eventually([&] { return CountOpen(idle) == 8; }));
  const UniqueFd node = ConnectTo(f.port(), "127.0.0.2");
  REQUIRE(Eventually([&] { return f.count() == 1001; }));
  CHECK_FALSE(IsClosed(node));
}

TEST_CASE("known connections give way to nobody") {
  ConnectionLimits limits = Loose();
  limits.per_address = 2;
  GateFixture f(limits);
  const UniqueFd first = ConnectTo(f.port()), second = ConnectTo(f.port());
  REQUIRE(Eventually([&] { return f.count() == 2; }));
  f.gate->NoteGood(GateFixture::NameOf(first));
  f.gate->NoteGood(GateFixture::NameOf(second));
  const UniqueFd third = ConnectTo(f.port());
  CHECK(Eventually([&] { return IsClosed(third); }));
  CHECK(f.count() == 2);
  CHECK_FALSE(IsClosed(first));
  CHECK_FALSE(IsClosed(second));
}

TEST_CASE("an address opens so many connections at once, and no more") {
  ConnectionLimits limits = Loose();
  limits.new_at_once = 10;
  limits.new_per_second = 0.001;
  GateFixture f(limits);
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 50; ++i) clients.push_back(ConnectTo(f.port()));
  CHECK(Eventually([&] { return CountOpen(clients) == 10; }));
  CHECK(Eventually([&] { return f.count() == 10; }));
  CHECK(f.HasRefused("too fast"));
}

TEST_CASE("a place is free again when its connection has ended") {
  ConnectionLimits limits = Loose();
  limits.connections = 1;
  GateFixture f(limits);
  for (size_t round = 1; round <= 3; ++round) {
    // The gate sees at its next look that the one before has gone.
    UniqueFd client;
    REQUIRE(Eventually([&] {
      client = ConnectTo(f.port());
      return Eventually([&] { return IsClosed(client) || f.count() == round; }) && f.count() == round;
    }));
    const absl::MutexLock lock(&f.mutex);
    f.handed_over.back().Reset();  // as gRPC does when it sees the end
  }
}

TEST_CASE("a stranger that sends much is ended, with its address, and a known connection of it goes on") {
  ConnectionLimits limits = Loose();
  limits.bytes_unknown = 1000;
  GateFixture f(limits);
  const UniqueFd known = ConnectTo(f.port()), stranger = ConnectTo(f.port());
  REQUIRE(Eventually([&] { return f.count() == 2; }));
  f.gate->NoteGood(GateFixture::NameOf(known));
  Send(known, 900);
  Send(stranger, 900);
  Send(stranger, 900);
  CHECK(Eventually([&] { return IsClosed(stranger); }));
  CHECK_FALSE(IsClosed(known));
  const UniqueFd again = ConnectTo(f.port());
  CHECK(Eventually([&] { return IsClosed(again); }));
  CHECK(f.HasRefused("too much data"));
  CHECK(f.HasRefused("shut out"));
  const UniqueFd other = ConnectTo(f.port(), "127.0.0.2");
  CHECK(Eventually([&] { return f.count() == 3; }));
}

TEST_CASE("a known connection may send on as long as its calls are good") {
  ConnectionLimits limits = Loose();
  limits.bytes_known = 10'000;
  GateFixture f(limits);
  const UniqueFd client = ConnectTo(f.port());
  REQUIRE(Eventually([&] { return f.count() == 1; }));
  // More than it may send at once, in portions, with a good call and two looks between them.
  for (int i = 0; i < 4; ++i) {
    f.gate->NoteGood(GateFixture::NameOf(client));
    Send(client, 4000);
    const absl::Time sent = absl::Now();
    REQUIRE(Eventually([&] { return absl::Now() - sent > absl::Milliseconds(600); }));
    REQUIRE_FALSE(IsClosed(client));
  }
  // The same without good calls.
  for (int i = 0; i < 4; ++i) Send(client, 4000);
  CHECK(Eventually([&] { return IsClosed(client); }));
}

TEST_CASE("a stranger that is idle is ended in time, and may come again") {
  ConnectionLimits limits = Loose();
  limits.time_unknown = absl::Milliseconds(300);
  GateFixture f(limits);
  const UniqueFd known = ConnectTo(f.port()), stranger = ConnectTo(f.port());
  REQUIRE(Eventually([&] { return f.count() == 2; }));
  f.gate->NoteGood(GateFixture::NameOf(known));
  CHECK(Eventually([&] { return IsClosed(stranger); }));
  CHECK_FALSE(IsClosed(known));
  const UniqueFd again = ConnectTo(f.port());
  CHECK(Eventually([&] { return f.count() == 3; }));
}

TEST_CASE("a connection with many wrong calls is ended; a good one forgives those before it") {
  ConnectionLimits limits = Loose();
  limits.bad_calls = 3;
  GateFixture f(limits);
  const UniqueFd client = ConnectTo(f.port());
  REQUIRE(Eventually([&] { return f.count() == 1; }));
  const std::string name = GateFixture::NameOf(client);
  for (int i = 0; i < 3; ++i) f.gate->NoteBad(name);
  f.gate->NoteGood(name);
  for (int i = 0; i < 3; ++i) f.gate->NoteBad(name);
  CHECK_FALSE(IsClosed(client));
  f.gate->NoteBad(name);
  CHECK(Eventually([&] { return IsClosed(client); }));
}

TEST_CASE("a gate that ran out of descriptors accepts again when there are some (CVE-2023-4785)") {
  GateFixture f(Loose());
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(ConnectTo(f.port()));
  REQUIRE(Eventually([&] { return f.count() == 20; }));
  // The clients' sockets are made first; the server has no descriptor left to accept them with.
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < 20; ++i) sockets.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit none = before;
  none.rlim_cur = 3;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(f.port()));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (const UniqueFd& each : sockets)
    CHECK(::connect(each.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  const absl::Time began = absl::Now();
  CHECK(Eventually([&] { return absl::Now() - began > absl::Milliseconds(600); }));
  CHECK(f.count() == 20);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(Eventually([&] { return f.count() == 40; }));
}

TEST_CASE("a gate that has stopped listens no more, and leaves its connections alone") {
  GateFixture f(Loose());
  const UniqueFd client = ConnectTo(f.port());
  REQUIRE(Eventually([&] { return f.count() == 1; }));
  const int port = f.port();
  f.gate->Stop();
  CHECK_FALSE(IsClosed(client));
  CHECK(ConnectionGate::Open(absl::StrCat("127.0.0.1:", port), Loose(), &f.metrics).ok());
}

TEST_CASE("an address in use, or that is none, is refused") {
  GateFixture f(Loose());
  for (const std::string& address :
       {absl::StrCat("127.0.0.1:", f.port()), std::string("no.such.host.invalid:1"), std::string("127.0.0.1"),
        std::string("198.51.100.1:0")}) {
    CAPTURE(address);
    CHECK(absl::IsUnavailable(ConnectionGate::Open(address, Loose(), &f.metrics).status()));
  }
  CHECK(ConnectionGate::Open(":0", Loose(), &f.metrics).ok());
}

}  // namespace lunkeeper
