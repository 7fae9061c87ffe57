#include "fencing/coordinator/known_replicas.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace lunkeeper {
namespace {

constexpr size_t kMostReplicas = 16;  // each node keeps a connection to each
constexpr uint32_t kHighestPort = 65535;
constexpr std::chrono::seconds kAsksWithin(15);  // replicas ask each second

// Without the port, as a part of host:port; empty: no address of a network.
std::string HostOf(const std::string& peer) {
  const size_t scheme = peer.find(':'), port = peer.rfind(':');
  if ((!absl::StartsWith(peer, "ipv4:") && !absl::StartsWith(peer, "ipv6:")) || port <= scheme) return "";
  // gRPC writes a peer as an URI.
  return absl::StrReplaceAll(peer.substr(scheme + 1, port - scheme - 1), {{"%5B", "["}, {"%5D", "]"}});
}

}  // namespace

void KnownReplicas::NoteReplica(const std::string& peer, uint32_t port, Time now) {
  const std::string host = HostOf(peer);
  if (host.empty() || port == 0 || port > kHighestPort) return;
  const std::string address = absl::StrCat(host, ":", port);
  absl::MutexLock lock(&mutex_);
  if (asked_at_.size() >= kMostReplicas && !asked_at_.contains(address)) return;
  asked_at_[address] = now;
}

std::vector<std::string> KnownReplicas::ListReplicas(Time now) {
  std::vector<std::string> addresses;
  absl::MutexLock lock(&mutex_);
  std::erase_if(asked_at_, [&](const auto& entry) { return now - entry.second >= kAsksWithin; });
  for (const auto& [address, at] : asked_at_) addresses.push_back(address);
  return addresses;
}

}  // namespace lunkeeper
