#pragma once
// A client's TCP connections to a port of this machine, from any of its loopback addresses. A failure fails
// the test that asked.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cstdint>

#include "base/unique_fd.h"

namespace lunkeeper {

inline UniqueFd ConnectTo(int port, const char* from = "127.0.0.1") {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{10, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  REQUIRE(::inet_pton(AF_INET, from, &at.sin_addr) == 1);
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  at.sin_port = htons(static_cast<uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  return fd;
}

// Whether the server has closed the connection. Does not wait.
inline bool IsClosed(const UniqueFd& fd) {
  char byte = 0;
  const ssize_t n = ::recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN);
}

}  // namespace lunkeeper
