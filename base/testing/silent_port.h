#pragma once
// For tests of paths that do not answer.

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>

#include "base/unique_fd.h"

namespace lunkeeper::testing {

// A port of this machine that is bound and, until FallSilent, refuses; with its queue full it does not
// answer.
class SilentPort {
 public:
  SilentPort() : fd_(Socket()) {
    sockaddr_in address{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof(address);
    REQUIRE(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    address_ = address;
  }
  std::string portal() const { return "127.0.0.1:" + std::to_string(ntohs(address_.sin_port)); }

  void FallSilent() {
    REQUIRE(::listen(fd_.get(), 0) == 0);
    for (UniqueFd& client : clients_) {
      client = Socket();
      ::connect(client.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof(address_));
    }
  }
  // As of a process that is stopped: the kernel takes connections.
  void Freeze() { REQUIRE(::listen(fd_.get(), 64) == 0); }
  void Refuse() { fd_.Reset(); }
  // The own ports of those who try to connect and are not answered, those of FallSilent among them.
  std::set<unsigned> Attempts() const {
    std::set<unsigned> ports;
    std::ifstream table("/proc/net/tcp");
    unsigned own = 0, other = 0, state = 0;
    for (std::string line; std::getline(table, line);) {
      const int found = std::sscanf(line.c_str(), " %*d: %*x:%x %*x:%x %x", &own, &other, &state);
      if (found == 3 && other == ntohs(address_.sin_port) && state == TCP_SYN_SENT) ports.insert(own);
    }
    return ports;
  }

 private:
  static UniqueFd Socket() {
    return UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  }
  UniqueFd fd_;
  sockaddr_in address_;
  UniqueFd clients_[4];
};

}  // namespace lunkeeper::testing
