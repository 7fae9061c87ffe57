// Any bytes at all from a client of the server of /metrics: it answers in HTTP or not at all, closes the
// connection, and serves the next one.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/http.h"
#include "base/unique_fd.h"

namespace {

using namespace lunkeeper;

constexpr int kServerGivesUp = 6000;  // ms: its own limit is five seconds

void Require(bool holds) {
  if (!holds) std::abort();
}

sockaddr_in Loopback(uint32_t host, uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x7f000000 | host);
  address.sin_port = htons(port);
  return address;
}

// From one address after the other: the ports of a single one would all wait for their time to be over.
UniqueFd ConnectTo(uint16_t port) {
  static uint32_t host = 1;
  host = host % 0xfffff + 1;
  UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in from = Loopback(host, 0);
  const sockaddr_in to = Loopback(1, port);
  Require(::bind(client.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0);
  Require(::connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  return client;
}

std::string ReadToEnd(int client) {
  std::string answer;
  for (;;) {
    pollfd ready{client, POLLIN, 0};
    const int polled = ::poll(&ready, 1, kServerGivesUp);
    if (polled < 0 && errno == EINTR) continue;  // libFuzzer's own alarm
    Require(polled == 1);
    char bytes[4096];
    const ssize_t got = ::read(client, bytes, sizeof bytes);
    if (got <= 0) return answer;  // also when it was reset: more was sent than the server reads
    answer.append(bytes, static_cast<size_t>(got));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto server = StartHttpServer("127.0.0.1:0", {{"/metrics", [] {
                                                                return HttpReply{200, "one 1\n"};
                                                              }}});
  Require(server.ok());
  const UniqueFd client = ConnectTo((*server)->port());
  (void)!::send(client.get(), data, size, MSG_NOSIGNAL);
  ::shutdown(client.get(), SHUT_WR);
  const std::string answer = ReadToEnd(client.get());
  Require(answer.empty() || answer.starts_with("HTTP/1."));
  return 0;
}
