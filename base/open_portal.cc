#include "base/open_portal.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/steady_deadline.h"
#include "base/unique_fd.h"

namespace lunkeeper {
namespace {

struct Opening {
  std::string portal;
  UniqueFd fd;
};

// An attempt to connect, under way or made; not valid: it failed at once.
UniqueFd BeginConnection(const std::string& portal) {
  const auto where = ParseHostPort(portal);
  if (!where) return {};
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(where->host.c_str(), absl::StrCat(where->port).c_str(), &hints, &found) != 0) return {};
  UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd && ::connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) fd.Reset();
  ::freeaddrinfo(found);
  return fd;
}

bool IsConnected(int fd) {
  sockaddr_storage peer;
  socklen_t size = sizeof(peer);
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

// Until so many are found.
std::set<std::string> AskPortals(const std::vector<std::string>& portals, absl::Duration within,
                                 size_t enough) {
  const SteadyDeadline deadline(within);
  std::set<std::string> open;
  std::vector<Opening> openings;
  for (const std::string& portal : portals)
    if (UniqueFd fd = BeginConnection(portal)) openings.push_back({portal, std::move(fd)});
  while (!openings.empty() && open.size() < enough) {
    std::vector<pollfd> waiting;
    for (const Opening& opening : openings)
      waiting.push_back({.fd = opening.fd.get(), .events = POLLOUT, .revents = 0});
    const auto left = static_cast<int>(absl::ToInt64Milliseconds(deadline.left()));
    if (::poll(waiting.data(), waiting.size(), left) <= 0) break;
    for (size_t i = waiting.size(); i-- > 0;) {
      if (waiting[i].revents == 0) continue;
      if (IsConnected(waiting[i].fd)) open.insert(openings[i].portal);
      openings.erase(openings.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return open;
}

}  // namespace

std::optional<std::string> FindOpenPortal(const std::vector<std::string>& portals, absl::Duration within) {
  const std::set<std::string> open = AskPortals(portals, within, 1);
  return open.empty() ? std::nullopt : std::optional(*open.begin());
}

std::set<std::string> ListOpenPortals(const std::vector<std::string>& portals, absl::Duration within) {
  return AskPortals(portals, within, portals.size());
}

}  // namespace lunkeeper
