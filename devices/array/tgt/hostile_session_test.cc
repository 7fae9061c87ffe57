// A node that has a grant, and uses its session against tgtd and its agent. Needs root.
#include <catch2/catch.hpp>

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "devices/array/tgt/testing/several_tgtds.h"

namespace {
std::atomic<bool> as_on_ethernet = false;
}  // namespace

// For libiscsi, too. Loopback's segments are so large that a socket's first buffer takes what Ethernet's does
// not.
extern "C" int connect(int socket, const sockaddr* address, socklen_t size) {
  constexpr int kSegment = 1448;
  if (as_on_ethernet) ::setsockopt(socket, IPPROTO_TCP, TCP_MAXSEG, &kSegment, sizeof kSegment);
  return static_cast<int>(::syscall(SYS_connect, socket, address, size));
}

namespace lunkeeper::testing {
namespace {

struct Hostile : Several {
  Hostile() : Several(1) { ::signal(SIGPIPE, SIG_IGN); }

  void LogIn(const Connection& at, const std::string& alias = "") {
    node.reset(iscsi_create_context(at.initiator.value().c_str()));
    iscsi_set_noautoreconnect(node.get(), 1);
    iscsi_set_targetname(node.get(), at.target.value().c_str());
    iscsi_set_session_type(node.get(), ISCSI_SESSION_NORMAL);
    if (!alias.empty()) iscsi_set_alias(node.get(), alias.c_str());
    iscsi_set_initiator_username_pwd(node.get(), at.chap.user.c_str(), at.chap.secret.c_str());
    REQUIRE(iscsi_full_connect_sync(node.get(), at.portal.c_str(), 1) == 0);
  }

  std::unique_ptr<iscsi_context, int (*)(iscsi_context*)> node{nullptr, iscsi_destroy_context};
};

// tgtd tries to send such an answer again and again, and does nothing else meanwhile.
TEST_CASE_METHOD(Hostile, "a node that takes no answer of 1 MiB stops nobody else for long, and is fenced") {
  const std::vector<Used> used = UseSome(1), others = UseSome(1, kOther);
  as_on_ethernet = true;
  LogIn(used[0].connection);
  as_on_ethernet = false;
  constexpr int kSize = 4096;
  ::setsockopt(iscsi_get_fd(node.get()), SOL_SOCKET, SO_RCVBUF, &kSize, sizeof kSize);
  std::string ping(1 << 20, 'x');
  auto* const data = reinterpret_cast<unsigned char*>(ping.data());
  for (int i = 0; i < 4; ++i)
    REQUIRE(iscsi_nop_out_async(node.get(), nullptr, data, static_cast<int>(ping.size()), nullptr) == 0);
  for (int i = 0; i < 300 && iscsi_out_queue_length(node.get()) > 0; ++i) {
    if (iscsi_service(node.get(), POLLOUT) != 0) break;
    absl::SleepFor(absl::Milliseconds(5));
  }
  const TgtClient tgtd(options.control_port, absl::Seconds(1));
  CHECK_FALSE(tgtd.ListTargets().ok());  // or nothing is tried here
  const auto view = Cluster();
  CHECK(Eventually([&] { return Fence(*view, kNode).ok(); }, absl::Seconds(30)));
  CHECK(others[0].session->Write(1, 'y'));
}

TEST_CASE_METHOD(Hostile, "a target that serves somebody is not adopted for what its session calls itself") {
  const std::vector<Used> used = UseSome(1);
  LogIn(used[0].connection, "x\n        LUN: 0\nTarget 2147483647: y");
  const pid_t before = Tgtd(0);
  array.reset();
  ChangeCatalogue("DELETE FROM grants");
  REQUIRE(Open().ok());
  CHECK(Tgtd(0) != before);
}

}  // namespace
}  // namespace lunkeeper::testing
