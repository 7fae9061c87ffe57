#include "devices/array/tgt/stuck_connections.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

// A living peer acknowledges within some milliseconds, or the network's round trip.
constexpr std::chrono::seconds kStill(1);
constexpr std::chrono::milliseconds kLooks(500);

// Of a link in /proc/PID/fd.
std::optional<uint64_t> SocketInode(absl::string_view link) {
  uint64_t inode = 0;
  if (!absl::ConsumePrefix(&link, "socket:[") || !absl::ConsumeSuffix(&link, "]")) return std::nullopt;
  return absl::SimpleAtoi(link, &inode) ? std::make_optional(inode) : std::nullopt;
}

// As tgtd shows it; empty: it has no peer, or one on this host's own sockets.
std::string PeerOf(int socket) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  auto* const address = reinterpret_cast<sockaddr*>(&peer);
  if (::getpeername(socket, address, &size) != 0) return "";
  if (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) return "";
  char host[NI_MAXHOST] = {};
  return ::getnameinfo(address, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) == 0 ? host : "";
}

bool TakesMore(int socket) {
  pollfd one{.fd = socket, .events = POLLOUT, .revents = 0};
  return ::poll(&one, 1, 0) != 0;
}

}  // namespace

void StuckConnections::NoteProgress(pid_t tgtd) {
  const absl::MutexLock lock(&mu_);
  if (std::chrono::steady_clock::now() - looked_at_ >= kLooks) GoThrough(tgtd, {}, false);
}

void StuckConnections::ShutDown(pid_t tgtd, const std::set<std::string>& peers, bool slow) {
  const absl::MutexLock lock(&mu_);
  GoThrough(tgtd, peers, slow);
}

void StuckConnections::GoThrough(pid_t tgtd, const std::set<std::string>& peers, bool slow) {
  const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, tgtd, 0)));
  if (!handle) return;  // it has ended
  const SteadyTime now = looked_at_ = std::chrono::steady_clock::now();
  std::map<uint64_t, Progress> seen;
  std::error_code error;
  for (std::filesystem::directory_iterator at(absl::StrCat("/proc/", tgtd, "/fd"), error), end;
       !error && at != end; at.increment(error)) {
    std::error_code closed_meanwhile;
    const auto inode = SocketInode(std::filesystem::read_symlink(at->path(), closed_meanwhile).string());
    int number = -1;
    if (!inode || !absl::SimpleAtoi(at->path().filename().string(), &number)) continue;
    const UniqueFd socket(static_cast<int>(::syscall(SYS_pidfd_getfd, handle.get(), number, 0)));
    if (!socket && errno == EPERM && !std::exchange(refused_, true))
      LogWarn("array",
              "tgtd's connections cannot be looked into: a node that dies while it reads is fenced "
              "when TCP gives its connection up, after up to a quarter of an hour",
              {{"process", absl::StrCat(tgtd)}, {"error", std::strerror(EPERM)}});
    const std::string peer = socket ? PeerOf(socket.get()) : "";
    if (peer.empty() || TakesMore(socket.get())) continue;
    if ((!IsStill(*inode, socket.get(), now, &seen) && !slow) || !peers.contains(peer)) continue;
    LogWarn("array", "a connection was ended whose peer takes no answers, and whose target is to be closed",
            {{"peer", peer}});
    ::shutdown(socket.get(), SHUT_RDWR);
  }
  progress_ = std::move(seen);
}

bool StuckConnections::IsStill(uint64_t inode, int socket, SteadyTime now,
                               std::map<uint64_t, Progress>* seen) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  const auto before = progress_.find(inode);
  const bool moved = before == progress_.end() || before->second.acknowledged != info.tcpi_bytes_acked;
  const auto& progress = (*seen)[inode] = {info.tcpi_bytes_acked, moved ? now : before->second.since};
  return now - progress.since >= kStill;
}

}  // namespace lunkeeper
