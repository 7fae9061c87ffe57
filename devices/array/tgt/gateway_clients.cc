// Ceph shows by which clients an image is open, and not whose they are. So they are counted: a LUN has one,
// which is registered before the LUN lets a node in. Who is more than tgtd's LUNs account for is another
// program.
#include "devices/array/tgt/gateway_clients.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// Monitors answer each after some 0.2 to 1 s, many at a time as fast as one.
constexpr size_t kBlockers = 128;
// Of a process that is gone, or of an image that it has closed, nothing is left but what is under way. A
// month, as for a host that may wake, would fill the cluster's map where a tgtd dies again and again.
constexpr absl::Duration kEndedLasts = absl::Hours(1);

}  // namespace

const std::set<ClientAddress>& ClientsIn(const ImageClients& images, const std::string& image) {
  static const std::set<ClientAddress> kNone;
  const auto found = images.find(image);
  return found == images.end() ? kNone : found->second;
}

void EraseClients(const ImageClients& gone, ImageClients& images) {
  for (const auto& [image, clients] : gone) {
    const auto found = images.find(image);
    if (found == images.end()) continue;
    for (const ClientAddress& client : clients) found->second.erase(client);
    if (found->second.empty()) images.erase(found);
  }
}

absl::Status GatewayClients::ShutOut(const std::set<ClientAddress>& clients, absl::Duration lasts) {
  const std::vector<ClientAddress> all(clients.begin(), clients.end());
  std::vector<absl::Status> blocked(all.size());
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> blockers(std::min(kBlockers, all.size()));
  for (std::jthread& blocker : blockers) {
    blocker = std::jthread([&] {
      for (size_t i = next++; i < all.size(); i = next++) blocked[i] = pool_.BlockClient(all[i], lasts);
    });
  }
  blockers.clear();
  for (const absl::Status& status : blocked) RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(pool_.WaitForMap());
  const absl::MutexLock lock(&mu_);
  shut_out_.insert(all.begin(), all.end());
  return absl::OkStatus();
}

std::set<ClientAddress> GatewayClients::shut_out() const {
  const absl::MutexLock lock(&mu_);
  return shut_out_;
}

std::set<ClientAddress> GatewayClients::SelectAlive(const std::string& image,
                                                    const std::set<ClientAddress>& clients) const {
  const std::set<ClientAddress>& ended = ClientsIn(ended_, image);
  std::set<ClientAddress> alive;
  for (const ClientAddress& client : clients)
    if (!ended.contains(client) && !shut_out_.contains(client)) alive.insert(client);
  return alive;
}

absl::StatusOr<std::set<ClientAddress>> GatewayClients::Register(const std::string& image,
                                                                 const std::set<ClientAddress>& clients) {
  const absl::MutexLock lock(&mu_);
  std::set<ClientAddress> alive = SelectAlive(image, clients);
  if (alive.empty())
    return absl::UnavailableError(absl::StrCat(
        "image ", image, ": it is seen to be open by nobody but a tgtd that has ended; try again"));
  known_[image].insert(alive.begin(), alive.end());
  return alive;
}

// A LUN whose registration has failed so far may account for one client that is not known. Not a LUN that is
// found open: its own was registered, also where it is not seen, since somebody has shut it out. Who is seen
// in its place is somebody else.
absl::StatusOr<std::set<ClientAddress>> GatewayClients::FindAlive(const std::string& image,
                                                                  const std::set<ClientAddress>& seen,
                                                                  const LunsOfImage& luns) const {
  const absl::MutexLock lock(&mu_);
  std::set<ClientAddress> alive = SelectAlive(image, seen);
  const std::set<ClientAddress>& registered = ClientsIn(known_, image);
  std::set<ClientAddress> unknown;
  std::ranges::set_difference(alive, registered, std::inserter(unknown, unknown.end()));
  const size_t known =
      luns.one_is_new ? alive.size() - unknown.size() : SelectAlive(image, registered).size();
  const size_t own = std::max<size_t>(luns.one_is_new ? 1 : 0, luns.most - std::min(luns.most, known));
  // The gateway before may have had it open by a client that it had not registered yet. One that is
  // registered here is this gateway's, so that one has ended.
  const bool one_more = took_over_ && luns.one_is_new && registered.empty();
  if (unknown.size() <= own + (one_more ? 1 : 0)) return alive;
  return absl::FailedPreconditionError(absl::StrCat(
      "image ", image, " is open elsewhere", own == 0 ? ", by " : ": this gateway is not all of ",
      absl::StrJoin(unknown, ", "), " (`rbd status` shows it): end that program"));
}

std::set<ClientAddress> GatewayClients::ClientsOf(const std::string& image) const {
  const absl::MutexLock lock(&mu_);
  return ClientsIn(known_, image);
}

void GatewayClients::NoteEnded(const std::string& image, const std::set<ClientAddress>& clients) {
  if (clients.empty()) return;
  const absl::MutexLock lock(&mu_);
  ended_[image].insert(clients.begin(), clients.end());
}

ImageClients GatewayClients::ended() const {
  const absl::MutexLock lock(&mu_);
  return ended_;
}

// One that had ended in the time of an earlier agent is found too, if that one shut it out and died before it
// forgot it. Then the image is opened anew for nothing.
absl::StatusOr<std::set<std::string>> GatewayClients::FindShutOut() const {
  ASSIGN_OR_RETURN(const std::set<ClientAddress> blocked, pool_.ListBlocked());
  const absl::MutexLock lock(&mu_);
  std::set<std::string> images;
  for (const auto& [image, clients] : known_) {
    for (const ClientAddress& client : SelectAlive(image, clients))
      if (blocked.contains(client)) images.insert(image);
  }
  return images;
}

absl::Status GatewayClients::ShutOutEnded(const std::string& image) {
  std::set<ClientAddress> clients;
  {
    const absl::MutexLock lock(&mu_);
    const auto ended = ended_.find(image);
    if (ended == ended_.end()) return absl::OkStatus();
    std::ranges::set_difference(ended->second, shut_out_, std::inserter(clients, clients.end()));
  }
  return clients.empty() ? absl::OkStatus() : ShutOut(clients, kEndedLasts);
}

absl::Status GatewayClients::ShutOutEnded() {
  std::set<ClientAddress> clients;
  for (const auto& [image, of_image] : ended()) clients.insert(of_image.begin(), of_image.end());
  for (const ClientAddress& client : shut_out()) clients.erase(client);
  return clients.empty() ? absl::OkStatus() : ShutOut(clients, kEndedLasts);
}

void GatewayClients::ForgetClients(const ImageClients& gone) {
  const absl::MutexLock lock(&mu_);
  EraseClients(gone, known_);
  EraseClients(gone, ended_);
}

}  // namespace lunkeeper
