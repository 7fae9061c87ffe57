#include "devices/array/tgt/stuck_connections.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/array/tgt/tgtd_sockets.h"

namespace lunkeeper {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks(500);
// A living peer acknowledges within some milliseconds, or the network's round trip.
constexpr std::chrono::seconds kStill(1);
// A peer that takes a little now and then, against one that reads another volume over a slow network: tgtd
// gives a connection that it is to close nothing more, and closes it when a third of its buffer is empty.
constexpr std::chrono::seconds kCounted(30);
constexpr uint64_t kLittle = 1 << 20;  // bytes
constexpr std::chrono::seconds kForgotten(5);

// As tgtd shows it; empty: it has no peer, or none on a network.
std::string PeerOf(const UniqueFd& socket) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  auto* const address = reinterpret_cast<sockaddr*>(&peer);
  if (::getpeername(socket.get(), address, &size) != 0) return "";
  if (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) return "";
  char host[NI_MAXHOST] = {};
  return ::getnameinfo(address, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) == 0 ? host : "";
}

bool TakesMore(const UniqueFd& socket) {
  pollfd one{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  return ::poll(&one, 1, 0) != 0;
}

void EndConnection(const UniqueFd& socket, const std::string& peer, const std::string& why) {
  LogWarn("array", absl::StrCat("a connection was ended whose peer takes no answers, and ", why),
          {{"peer", peer}});
  ::shutdown(socket.get(), SHUT_RDWR);
}

}  // namespace

void StuckConnections::EndStuck(const std::vector<TgtConnection>& listed) {
  const absl::MutexLock lock(&mu_);
  for (const TgtConnection& each : listed) peers_.insert(each.address);
  if (!BeginLook()) return;
  if (const auto tgtd = tgt_->FindProcess(); tgtd.ok()) GoThrough(*tgtd, &peers_);
  peers_.clear();
}

void StuckConnections::EndAllStuck(pid_t tgtd) {
  const absl::MutexLock lock(&mu_);
  if (BeginLook()) GoThrough(tgtd, nullptr);
}

bool StuckConnections::BeginLook() {
  const SteadyTime now = std::chrono::steady_clock::now();
  if (now - looked_at_ < kBetweenLooks) return false;
  if (now - looked_at_ > kForgotten) progress_.clear();  // nobody saw whether they took more in between
  looked_at_ = now;
  return true;
}

void StuckConnections::GoThrough(pid_t tgtd, const std::set<std::string>* peers) {
  const absl::Status looked = TryToGoThrough(tgtd, peers);
  if (looked.ok() || std::exchange(refused_, true)) return;
  LogWarn(
      "array",
      "tgtd's connections cannot be looked into: a node that dies while it reads is fenced when TCP gives "
      "its connection up, after up to a quarter of an hour",
      {{"process", absl::StrCat(tgtd)}, {"error", std::string(looked.message())}});
}

absl::Status StuckConnections::TryToGoThrough(pid_t tgtd, const std::set<std::string>* peers) {
  const std::set<uint16_t> ports = PortsOf(portals_());
  const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, tgtd, 0)));
  if (!handle) return absl::OkStatus();  // it has ended
  const std::vector<int> numbers = ListDescriptors(tgtd);
  std::map<uint64_t, Progress> seen;
  std::set<std::string> silent;
  RETURN_IF_ERROR(LookAtDescriptors(handle, numbers, [&](int, const UniqueFd& socket) {
    mu_.AssertHeld();
    if (!ports.contains(OwnPortOf(socket).value_or(0))) return;
    const std::string peer = PeerOf(socket);
    if (peer.empty() || TakesMore(socket) || !IsStuck(socket, seen)) return;
    if (peers == nullptr) silent.insert(peer);
    if (peers != nullptr && peers->contains(peer))
      EndConnection(socket, peer, "whose target is to be closed");
  }));
  progress_ = std::move(seen);
  if (silent.empty()) return absl::OkStatus();
  // The others of that peer take no more than this one: tgtd would wait for each of them in turn.
  return LookAtDescriptors(handle, numbers, [&](int, const UniqueFd& socket) {
    const std::string peer = PeerOf(socket);
    if (silent.contains(peer) && ports.contains(OwnPortOf(socket).value_or(0)))
      EndConnection(socket, peer, "for which tgtd waits");
  });
}

// `seen`: to be known at the next look.
bool StuckConnections::IsStuck(const UniqueFd& socket, std::map<uint64_t, Progress>& seen) {
  const auto info = ReadTcpInfo(socket);
  if (!info) return false;
  const uint64_t cookie = CookieOf(socket);
  const auto before = progress_.find(cookie);
  const Progress first{info->tcpi_bytes_acked, looked_at_, info->tcpi_bytes_acked, looked_at_};
  Progress& progress = seen[cookie] = before == progress_.end() ? first : before->second;
  return TakesNothing(info->tcpi_bytes_acked, looked_at_, progress);
}

bool StuckConnections::TakesNothing(uint64_t acknowledged, SteadyTime now, Progress& progress) {
  if (acknowledged != progress.acknowledged) progress.acknowledged = acknowledged, progress.since = now;
  if (now - progress.since >= kStill) return true;
  if (now - progress.counting_since < kCounted) return false;
  if (acknowledged - progress.counted_from < kLittle) return true;
  progress.counted_from = acknowledged, progress.counting_since = now;
  return false;
}

}  // namespace lunkeeper
