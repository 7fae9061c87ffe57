// A connection that is chosen to end is duplicated once more (tgtd_sockets.h), and its cookie says whether
// the number is still the same connection's.
#include "devices/array/tgt/surplus_connections.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/array/tgt/tgtd_sockets.h"

namespace lunkeeper {
namespace {

// Of all addresses together; the gate of the agent's own port has as many.
constexpr size_t kMostConnections = 15'000;

struct PortalConnection {
  int number = -1;  // of tgtd's descriptor
  uint64_t cookie = 0;
  Standing standing;
  uint32_t segments = 0;  // of answers
  uint64_t answered = 0;  // bytes that the peer has
  std::string address;    // the bytes of it; of IPv6 a network's, of which a host has all addresses
};

struct Descriptors {
  size_t others = 0;  // no sockets
  std::vector<PortalConnection> connections;
};

std::string AddressOf(const sockaddr_storage& peer) {
  constexpr size_t kNetworkBytes = 8;
  if (peer.ss_family == AF_INET)
    return {reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in&>(peer).sin_addr),
            sizeof(in_addr)};
  return {reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr),
          kNetworkBytes};
}

// Adds what this descriptor is. Listening sockets, and those to Ceph, are neither.
void AddDescriptor(const UniqueFd& fd, int number, const std::set<uint16_t>& ports,
                   ConnectionHistory& history, Descriptors& all) {
  const std::optional<uint16_t> port = OwnPortOf(fd);
  if (!port) ++all.others;
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  if (!port || !ports.contains(*port) ||
      ::getpeername(fd.get(), reinterpret_cast<sockaddr*>(&peer), &length) != 0)
    return;
  const auto info = ReadTcpInfo(fd);
  if (!info) return;
  const uint64_t cookie = CookieOf(fd);
  all.connections.push_back({.number = number,
                             .cookie = cookie,
                             .standing = history.NoteConnection(cookie, info->tcpi_bytes_acked),
                             .segments = info->tcpi_data_segs_out,
                             .answered = info->tcpi_bytes_acked,
                             .address = AddressOf(peer)});
}

// Half of its descriptors stay for images and for our calls.
size_t MostOfAll(pid_t process, size_t sessions) {
  rlimit limit{};
  if (::prlimit(process, RLIMIT_NOFILE, nullptr, &limit) != 0) return kMostConnections + sessions;
  return std::min<size_t>(kMostConnections + sessions, limit.rlim_cur / 2);
}

// Half of the places are for the best standing, which nobody can buy later. A program that has just started
// has seen nobody stand yet: then the number of answers decides. The other half are for the most answered of
// the rest: a session that is new and busy.
void TakeSurplus(std::vector<PortalConnection> all, size_t most, std::vector<PortalConnection>& surplus,
                 std::vector<PortalConnection>& kept) {
  const auto at = [&](size_t place) {
    return all.begin() + static_cast<std::ptrdiff_t>(std::min(place, all.size()));
  };
  std::ranges::sort(all, std::greater(),
                    [](const PortalConnection& each) { return std::pair(each.standing, each.segments); });
  std::ranges::sort(at(most / 2), all.end(), std::greater(), &PortalConnection::answered);
  kept.insert(kept.end(), all.begin(), at(most));
  surplus.insert(surplus.end(), at(most), all.end());
}

std::vector<PortalConnection> ChooseSurplus(Descriptors all, size_t sessions, size_t most_of_all) {
  std::map<std::string, std::vector<PortalConnection>> by_address;
  for (PortalConnection& each : all.connections) by_address[each.address].push_back(std::move(each));
  std::vector<PortalConnection> surplus, kept, rest;
  for (auto& [address, own] : by_address)
    TakeSurplus(std::move(own), kSpareConnections + sessions, surplus, kept);
  TakeSurplus(std::move(kept), most_of_all, surplus, rest);
  return surplus;
}

}  // namespace

SurplusConnections::SurplusConnections(const std::vector<std::string>& portals) : ports_(PortsOf(portals)) {}

void SurplusConnections::EndSurplus(pid_t tgtd, const UniqueFd& handle) {
  const auto ended = TryToEnd(tgtd, handle);
  if (!ended.ok() && !std::exchange(cannot_, true))
    LogError("array", "tgtd may have too many connections, and none of them can be ended from here",
             {{"process", absl::StrCat(tgtd)}, {"error", std::string(ended.status().message())}});
  if (!ended.ok() || *ended == 0) return;
  ended_ += *ended;
  LogWarn("array", "ended connections to the portals: an address had far more than it can have sessions",
          {{"connections", absl::StrCat(*ended)}, {"process", absl::StrCat(tgtd)}});
}

// Also while there are few: so there is a history when they become many.
absl::StatusOr<size_t> SurplusConnections::TryToEnd(pid_t tgtd, const UniqueFd& handle) {
  const std::vector<int> numbers = ListDescriptors(tgtd);
  const bool few = numbers.size() <= kSpareConnections;
  Descriptors all;
  history_.BeginLook(std::chrono::steady_clock::now());
  const absl::Status looked = LookAtDescriptors(handle, numbers, [&](int number, const UniqueFd& fd) {
    AddDescriptor(fd, number, ports_, history_, all);
  });
  if (looked.ok()) history_.EndLook();
  if (few) return 0;
  RETURN_IF_ERROR(looked);
  const size_t sessions = 2 * all.others;
  size_t ended = 0;
  for (const PortalConnection& each : ChooseSurplus(std::move(all), sessions, MostOfAll(tgtd, sessions))) {
    const UniqueFd fd = DuplicateDescriptor(handle, each.number);
    if (fd && CookieOf(fd) == each.cookie && ::shutdown(fd.get(), SHUT_RDWR) == 0) ++ended;
  }
  return ended;
}

}  // namespace lunkeeper
