// A node that has a grant, and uses its session against tgtd and its agent; and a stranger, who has none.
// Needs root.
#include <catch2/catch.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/tcp_client.h"
#include "devices/array/tgt/testing/raw_session.h"
#include "devices/array/tgt/testing/several_tgtds.h"

namespace {
std::atomic<bool> as_another_host = false;
}  // namespace

// For libiscsi, too: from an address of its own, and as on Ethernet. Loopback's segments are so large that a
// socket's first buffer takes what Ethernet's does not.
extern "C" int connect(int socket, const sockaddr* address, socklen_t size) {
  constexpr int kSegment = 1448;
  if (as_another_host) {
    const sockaddr_in own = {AF_INET, 0, {htonl(INADDR_LOOPBACK + 76)}, {}};
    ::setsockopt(socket, IPPROTO_TCP, TCP_MAXSEG, &kSegment, sizeof kSegment);
    ::bind(socket, reinterpret_cast<const sockaddr*>(&own), sizeof own);
  }
  return static_cast<int>(::syscall(SYS_connect, socket, address, size));
}

namespace lunkeeper::testing {
namespace {

struct Hostile : Several {
  Hostile() : Several(1) {}
};

// All targets are asked for before anybody has logged in.
TEST_CASE_METHOD(Hostile, "a request before any login ends no tgtd, and names no target") {
  const std::vector<Used> used = UseSome(1);
  const pid_t before = Tgtd(0);
  std::string request(48, '\0');
  request[0] = 0x04, request[1] = static_cast<char>(0x80), request[7] = 16;
  request.replace(20, 4, "\xff\xff\xff\xff");
  request += std::string("SendTargets=All\0", 16);
  const UniqueFd stranger = ConnectTo(PortOf(0));
  REQUIRE(::send(stranger.get(), request.data(), request.size(), 0) == ssize_t(request.size()));
  char answer[4096];
  CHECK(::recv(stranger.get(), answer, sizeof answer, 0) == 48);  // a header alone
  CHECK(used[0].session->Write(1, 'y'));
  CHECK(Tgtd(0) == before);
}

// tgtd tries to send such an answer again and again, and does nothing else meanwhile.
TEST_CASE_METHOD(Hostile, "a node that takes no answer of 1 MiB stops nobody else for long, and is fenced") {
  const std::vector<Used> used = UseSome(1), others = UseSome(1, kOther);
  as_another_host = true;
  RawSession node(used[0].connection);
  as_another_host = false;
  node.SendUnreadPings(4, 1 << 20);
  const TgtClient tgtd(options.control_port, absl::Seconds(1));
  CHECK_FALSE(tgtd.ListTargets().ok());  // or nothing is tried here
  if (GENERATE(false, true)) {           // also by an agent that starts now
    array.reset();
    REQUIRE(Open() == absl::OkStatus());
  }
  const auto view = Cluster();
  CHECK(Eventually([&] { return Fence(*view, kNode).ok(); }, absl::Seconds(30)));
  CHECK(others[0].session->Write(1, 'y'));
}

// Each by itself would stop tgtd for as long: for 6 s.
TEST_CASE_METHOD(Hostile, "the sessions of a node that takes no answers end together") {
  const std::vector<Used> used = UseSome(8), others = UseSome(1, kOther);
  std::vector<std::unique_ptr<RawSession>> sessions;
  as_another_host = true;
  for (const Used& each : used) sessions.push_back(std::make_unique<RawSession>(each.connection));
  as_another_host = false;
  for (const auto& session : sessions) session->SendUnreadReads(8, 1 << 20);
  const absl::Time begun = absl::Now();
  CHECK(Eventually([&] { return others[0].session->Write(1, 'y'); }, absl::Seconds(60)));
  CHECK(absl::Now() - begun < absl::Seconds(30));
}

TEST_CASE_METHOD(Hostile, "a target that serves somebody is not adopted for what its session calls itself") {
  const std::vector<Used> used = UseSome(1);
  const RawSession node(used[0].connection, "x\n        LUN: 0\nTarget 2147483647: y");
  const pid_t before = Tgtd(0);
  array.reset();
  ChangeCatalogue("DELETE FROM grants");
  REQUIRE(Open().ok());
  CHECK(Tgtd(0) != before);
}

}  // namespace
}  // namespace lunkeeper::testing
