#pragma once
// An address as people write it: host:port, [v6]:port, or :port with an empty host. Pure.

#include <cstdint>
#include <optional>
#include <string>

namespace lunkeeper {

struct HostPort {
  std::string host;  // a name or a number, without brackets; whether it may be empty is the caller's matter
  uint16_t port = 0;
};

// nullopt: no port or one beyond 65535, or a v6 address without brackets, where the port is anybody's guess.
std::optional<HostPort> ParseHostPort(const std::string& text);

}  // namespace lunkeeper
