// The machine that the doctor looks at, with real sockets.

#include "plugin/doctor_surroundings.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

using Catch::Contains;

// Nobody accepts or reads: what arrives is the kernel's. `room`: how many bytes it keeps; 0: its own choice.
struct SilentPortal {
  explicit SilentPortal(int room = 0) : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in here = {
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {::htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof here;
    if (room != 0) REQUIRE(::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room) == 0);
    REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&here), size) == 0);
    REQUIRE(::listen(socket.get(), 4) == 0);
    REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here), &size) == 0);
    address = absl::StrCat("127.0.0.1:", ::ntohs(here.sin_port));
  }
  UniqueFd socket;
  std::string address;
};

TEST_CASE("a portal that takes much is told from one that takes little, and from none") {
  const Surroundings around = RealSurroundings();
  const SilentPortal much, little(1);
  CHECK(around.connect(much.address) == absl::OkStatus());
  CHECK(around.send_much(much.address) == absl::OkStatus());
  CHECK(around.connect(little.address) == absl::OkStatus());
  CHECK_THAT(std::string(around.send_much(little.address).message()), Contains("were not acknowledged"));
  const SilentPortal says_nothing(1);
  UniqueFd taken;
  std::thread server([&] {
    taken.Reset(::accept4(says_nothing.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ::shutdown(taken.get(), SHUT_WR);  // as tgtd does that has no target
  });
  CHECK_FALSE(around.send_much(says_nothing.address).ok());
  server.join();
  std::string gone;
  { gone = SilentPortal().address; }
  CHECK(absl::IsUnavailable(around.connect(gone)));
}

TEST_CASE("a name with an address is told from one without") {
  const Surroundings around = RealSurroundings();
  CHECK(around.resolve("localhost") == absl::OkStatus());
  CHECK(around.resolve("10.0.0.5") == absl::OkStatus());
  CHECK(around.resolve("fd00::5") == absl::OkStatus());
  CHECK(absl::IsUnavailable(around.resolve("coordinator.invalid")));
}

}  // namespace
}  // namespace lunkeeper
