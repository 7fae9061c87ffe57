#include "base/host_port.h"

#include <catch2/catch.hpp>

namespace lunkeeper {
namespace {

TEST_CASE("an address is a host and a port") {
  const auto [text, host, port] = GENERATE(table<std::string, std::string, uint16_t>({
      {"127.0.0.1:3260", "127.0.0.1", 3260},
      {"storage-1.example:65535", "storage-1.example", 65535},
      {"[fe80::1]:80", "fe80::1", 80},
      {":0", "", 0},
  }));
  const auto parsed = ParseHostPort(text);
  REQUIRE(parsed);
  CHECK(parsed->host == host);
  CHECK(parsed->port == port);
}

TEST_CASE("an address is written in one way") {
  const auto [text, written] = GENERATE(table<std::string, std::string>({
      {"127.0.0.1:3260", "127.0.0.1:3260"},
      {"[10.0.0.5]:03260", "10.0.0.5:3260"},  // by who does not know of which kind it is
      {"[fe80::1]:80", "[fe80::1]:80"},
      {"host:1", "host:1"},
      {":0", ":0"},
  }));
  CHECK(FormatHostPort(*ParseHostPort(text)) == written);
}

TEST_CASE("what is no address is refused") {
  const std::string text = GENERATE("", "host", "host:", "host:65536", "host:-1", "host:+1", "host: 1",
                                    "host:1x", "::1:80", "[::1:80", "::1]:80", "[]:80", "[::1]80");
  CAPTURE(text);
  CHECK_FALSE(ParseHostPort(text));
}

}  // namespace
}  // namespace lunkeeper
