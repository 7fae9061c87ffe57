#include "base/metrics.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/http.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

UniqueFd Connect(uint16_t port, const char* from = "127.0.0.1") {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  REQUIRE(::inet_pton(AF_INET, from, &own.sin_addr) == 1);
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)) == 0);
  const timeval limit{10, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  return fd;
}

UniqueFd Ask(uint16_t port, const std::string& request) {
  UniqueFd fd = Connect(port);
  REQUIRE(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size()));
  return fd;
}

// What the server sends until it closes the connection.
std::string Answer(const UniqueFd& fd) {
  std::string reply;
  char buffer[4096];
  for (ssize_t n; (n = ::recv(fd.get(), buffer, sizeof(buffer), 0)) > 0;) reply.append(buffer, n);
  return reply;
}

std::string Exchange(uint16_t port, const std::string& request) { return Answer(Ask(port, request)); }

std::string Get(uint16_t port, const std::string& path) {
  return Exchange(port, "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
}

}  // namespace

TEST_CASE("finished calls appear in the histogram by method and code, running ones in the gauge") {
  Metrics metrics("all");
  metrics.RpcStarted("csi.v1.Node/NodeStageVolume");
  CHECK_THAT(metrics.ToText(),
             Catch::Contains("lunkeeper_rpc_running{method=\"csi.v1.Node/NodeStageVolume\"} 1"));
  metrics.RpcFinished("csi.v1.Node/NodeStageVolume", "OK", absl::Milliseconds(30));
  const std::string text = metrics.ToText();
  CHECK_THAT(text, Catch::Contains("lunkeeper_rpc_running{method=\"csi.v1.Node/NodeStageVolume\"} 0"));
  CHECK_THAT(text, Catch::Contains("lunkeeper_rpc_duration_seconds_count"));
  CHECK_THAT(text, Catch::Contains("le=\"0.025\"} 0"));
  CHECK_THAT(text, Catch::Contains("le=\"0.05\"} 1"));
  CHECK_THAT(text, Catch::Contains("lunkeeper_build_info"));
}

TEST_CASE("a fact about the process is shown as it was last set") {
  Metrics metrics("node");
  metrics.SetGauge("lunkeeper_registered", "Whether kubelet knows this driver", 0);
  metrics.SetGauge("lunkeeper_registered", "Whether kubelet knows this driver", 1);
  CHECK_THAT(metrics.ToText(), Catch::Contains("\nlunkeeper_registered 1\n"));
}

TEST_CASE("of a figure with labels, those that are not given any more read 0") {
  Metrics metrics("controller");
  metrics.SetGauge("lunkeeper_things", "Things by state", {{{{"state", "new"}}, 2}, {{{"state", "old"}}, 1}});
  metrics.SetGauge("lunkeeper_things", "Things by state", {{{{"state", "old"}}, 3}});
  CHECK_THAT(metrics.ToText(), Catch::Contains("lunkeeper_things{state=\"new\"} 0\n") &&
                                   Catch::Contains("lunkeeper_things{state=\"old\"} 3\n"));
  metrics.ObserveDuration("lunkeeper_steps", "How long steps took", {{"step", "one"}}, absl::Seconds(2));
  CHECK_THAT(metrics.ToText(), Catch::Contains("lunkeeper_steps_count{step=\"one\"} 1\n") &&
                                   Catch::Contains("lunkeeper_steps_sum{step=\"one\"} 2\n"));
}

TEST_CASE("pages are served, and nothing else is") {
  bool healthy = true;
  auto server = StartHttpServer(
      "127.0.0.1:0", {{"/healthz", [&] {
                         return healthy ? HttpReply{200, "ok\n"} : HttpReply{503, "the array is away\n"};
                       }}});
  REQUIRE(server.ok());
  const uint16_t port = (*server)->port();
  CHECK_THAT(Get(port, "/healthz"), Catch::StartsWith("HTTP/1.1 200") && Catch::EndsWith("ok\n"));
  CHECK_THAT(Get(port, "/healthz?verbose"), Catch::StartsWith("HTTP/1.1 200"));
  healthy = false;
  CHECK_THAT(Get(port, "/healthz"),
             Catch::StartsWith("HTTP/1.1 503") && Catch::EndsWith("the array is away\n"));
  CHECK_THAT(Get(port, "/"), Catch::StartsWith("HTTP/1.1 404"));
  CHECK_THAT(Exchange(port, "DELETE /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
             Catch::StartsWith("HTTP/1.1 405"));
}

TEST_CASE("all addresses are those of IPv4 and those of IPv6") {
  for (const char* address : {"0.0.0.0:0", ":0", "[::]:0"}) {
    CAPTURE(address);
    auto server = StartHttpServer(address, {{"/healthz", [] { return HttpReply{200, "ok\n"}; }}});
    REQUIRE(server.ok());
    const uint16_t port = (*server)->port();
    CHECK_THAT(Get(port, "/healthz"), Catch::StartsWith("HTTP/1.1 200"));
    const UniqueFd v6(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_addr = in6addr_loopback;
    if (!v6 || ::bind(v6.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) return;  // no IPv6
    to.sin6_port = htons(port);
    CHECK(::connect(v6.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
  }
}

TEST_CASE("a request that is nonsense, endless or never finished holds nobody up") {
  auto server = StartHttpServer("127.0.0.1:0", {{"/healthz", [] { return HttpReply{200, "ok\n"}; }}});
  REQUIRE(server.ok());
  const uint16_t port = (*server)->port();
  const UniqueFd idle = Connect(port);
  CHECK(Exchange(port, "\x16\x03\x01 not http at all\r\n\r\n").empty());
  CHECK(Exchange(port, "GET /" + std::string(8000, 'a') + " HTTP/1.1\r\n").empty());
  CHECK_THAT(Get(port, "/healthz"), Catch::StartsWith("HTTP/1.1 200"));
}

TEST_CASE("a thousand connections that are held open keep nobody out") {
  auto server = StartHttpServer("127.0.0.1:0", {{"/healthz", [] { return HttpReply{200, "ok\n"}; }}});
  REQUIRE(server.ok());
  const uint16_t port = (*server)->port();
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 1000; ++i) {
    idle.push_back(Connect(port));
    if (i % 50 == 49) CHECK_THAT(Get(port, "/healthz"), Catch::StartsWith("HTTP/1.1 200"));
  }
}

TEST_CASE("who floods the port loses connections of its own, and nobody else does") {
  auto server = StartHttpServer("127.0.0.1:0", {{"/healthz", [] { return HttpReply{200, "ok\n"}; }}});
  REQUIRE(server.ok());
  const uint16_t port = (*server)->port();
  // It has begun its request, and is the oldest connection of all.
  const UniqueFd slow = Connect(port, "127.0.0.2");
  const std::string begun = "GET /healthz HTTP/1.1\r\n", rest = "Host: x\r\nConnection: close\r\n\r\n";
  REQUIRE(::send(slow.get(), begun.data(), begun.size(), MSG_NOSIGNAL) > 0);
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 500; ++i) flood.push_back(Connect(port));
  CHECK(Answer(flood.front()).empty());  // closed, long before its time
  REQUIRE(::send(slow.get(), rest.data(), rest.size(), MSG_NOSIGNAL) > 0);
  CHECK_THAT(Answer(slow), Catch::StartsWith("HTTP/1.1 200"));
}

TEST_CASE("a page that is slow holds up no other") {
  absl::Notification asked, answer;
  auto server = StartHttpServer("127.0.0.1:0", {{"/healthz",
                                                 [] {
                                                   return HttpReply{200, "ok\n"};
                                                 }},
                                                {"/readyz", [&] {
                                                   asked.Notify();
                                                   answer.WaitForNotification();
                                                   return HttpReply{200, "ready\n"};
                                                 }}});
  REQUIRE(server.ok());
  const uint16_t port = (*server)->port();
  const UniqueFd slow = Ask(port, "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  asked.WaitForNotification();
  CHECK_THAT(Get(port, "/healthz"), Catch::EndsWith("ok\n"));
  answer.Notify();
  CHECK_THAT(Answer(slow), Catch::EndsWith("ready\n"));
}

TEST_CASE("an address that is wrong or taken is refused with its text") {
  for (const char* address : {"", "localhost:80", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x", ":"}) {
    CAPTURE(address);
    CHECK(absl::IsInvalidArgument(StartHttpServer(address, {}).status()));
  }
  const auto first = StartHttpServer("127.0.0.1:0", {});
  REQUIRE(first.ok());
  const auto second = StartHttpServer("127.0.0.1:" + std::to_string((*first)->port()), {});
  CHECK(absl::IsUnavailable(second.status()));
}

}  // namespace lunkeeper
