#include "fencing/agent/path_watch.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

// A port of this machine that is bound and, until Listen, refuses; with its queue full it does not answer.
class Port {
 public:
  Port() : fd_(Socket()) {
    sockaddr_in address{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof(address);
    REQUIRE(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    address_ = address;
  }
  std::string portal() const { return absl::StrCat("127.0.0.1:", ntohs(address_.sin_port)); }

  void FallSilent() {
    REQUIRE(::listen(fd_.get(), 0) == 0);
    for (UniqueFd& client : clients_) {
      client = Socket();
      ::connect(client.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof(address_));
    }
  }
  void Refuse() { fd_.Reset(); }

 private:
  static UniqueFd Socket() {
    return UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  }
  UniqueFd fd_;
  sockaddr_in address_;
  UniqueFd clients_[4];
};

bool Comes(const std::function<bool()>& condition) {
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

}  // namespace

TEST_CASE("a portal that refuses is reached; one that falls silent is lost until it is heard again") {
  Port port;
  PathWatch paths;
  paths.WatchPortals({port.portal()});
  const absl::Time begun = absl::Now();
  CHECK(Comes([&] { return paths.IsLost(port.portal()) || absl::Now() - begun > absl::Seconds(2); }));
  CHECK_FALSE(paths.IsLost(port.portal()));
  port.FallSilent();
  CHECK(Comes([&] { return paths.IsLost(port.portal()); }));
  port.Refuse();
  CHECK(Comes([&] { return !paths.IsLost(port.portal()); }));
}

TEST_CASE("what is not watched is not lost, and begins anew when it is watched again") {
  Port port;
  port.FallSilent();
  PathWatch paths;
  CHECK_FALSE(paths.IsLost(port.portal()));
  paths.WatchPortals({port.portal()});
  REQUIRE(Comes([&] { return paths.IsLost(port.portal()); }));
  paths.WatchPortals({});
  CHECK_FALSE(paths.IsLost(port.portal()));
  paths.WatchPortals({port.portal(), "not a portal"});
  CHECK_FALSE(paths.IsLost(port.portal()));
  CHECK_FALSE(paths.IsLost("not a portal"));
}

}  // namespace lunkeeper
