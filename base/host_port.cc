#include "base/host_port.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lunkeeper {

std::optional<HostPort> ParseHostPort(const std::string& text) {
  // The last colon: a v6 address has others before it.
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  const std::string digits = text.substr(colon + 1);
  uint32_t port = 0;
  // SimpleAtoi alone would also take a sign and blanks.
  if (digits.find_first_not_of("0123456789") != std::string::npos || !absl::SimpleAtoi(digits, &port) ||
      port > 65535) {
    return std::nullopt;
  }
  std::string host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.find_first_of("[]") != std::string::npos) return std::nullopt;
  // A bare v6 address, whose last group would be taken for the port.
  if (!bracketed && host.find(':') != std::string::npos) return std::nullopt;
  return HostPort{.host = std::move(host), .port = static_cast<uint16_t>(port)};
}

std::string FormatHostPort(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? absl::StrCat("[", address.host, "]:", address.port)
            : absl::StrCat(address.host, ":", address.port);
}

}  // namespace lunkeeper
