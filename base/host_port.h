#pragma once
// An address as it is written on a command line: host:port, [v6]:port, or :port with an empty host. Pure.

#include <cstdint>
#include <optional>
#include <string>

namespace lunkeeper {

struct HostPort {
  std::string host;  // a name or a number, without brackets; may be empty
  uint16_t port = 0;
};

// nullopt: no port or one beyond 65535, or a v6 address without brackets, of which nobody can say where the
// port begins.
std::optional<HostPort> ParseHostPort(const std::string& text);
// The one way to write it: with brackets around a v6 address, and only there.
std::string FormatHostPort(const HostPort& address);

}  // namespace lunkeeper
