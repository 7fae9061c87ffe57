#pragma once
// In place of an agent whose host hangs: who connects is never answered. For one thread.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "base/host_port.h"

namespace lunkeeper::testing {

class MuteAgent {
 public:
  explicit MuteAgent(const std::string& at) : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(ParseHostPort(at)->port));
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(::listen(listener_, 16) == 0);
  }
  ~MuteAgent() { ::close(listener_); }
  MuteAgent(const MuteAgent&) = delete;
  MuteAgent& operator=(const MuteAgent&) = delete;

 private:
  const int listener_;
};

}  // namespace lunkeeper::testing
