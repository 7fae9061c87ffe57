#pragma once
// For tests of a port that is in use.

#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "base/unique_fd.h"

namespace lunkeeper::testing {

// Another program's port of this host, for as long as it lives.
class TakenPort {
 public:
  explicit TakenPort(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int reuse = 1;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    REQUIRE(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(::listen(socket_.get(), 1) == 0);
  }

 private:
  UniqueFd socket_;
};

}  // namespace lunkeeper::testing
