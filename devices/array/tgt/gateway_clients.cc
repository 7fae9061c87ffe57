// Ceph shows by which clients an image is open, and not whose they are. So it is asked before tgtd opens an
// image, and after that: who is new is tgtd's client, and is registered before the LUN lets a node in. Who is
// not registered is another program, with one exception: where an agent ended between the two, its tgtd's
// client is not known.
#include "devices/array/tgt/gateway_clients.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <iterator>
#include <thread>
#include <utility>
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

GatewayClients::GatewayClients(const CephPool& pool, ImageClients images)
    : pool_(pool), blocklist_(pool), known_(std::move(images)) {
  for (const auto& [image, clients] : known_)
    if (clients.empty()) left_opening_.insert(image);
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
  if (alive.empty() && !clients.empty())
    return absl::UnavailableError(absl::StrCat(
        "image ", image, ": it is seen to be open by nobody but a tgtd that has ended; try again"));
  known_[image].insert(alive.begin(), alive.end());
  if (const auto ended = ended_.find(image); ended != ended_.end() && ended->second.empty())
    ended_.erase(ended);  // it is being opened anew
  blocklist_.LookAgain();
  return alive;
}

std::set<ClientAddress> GatewayClients::SelectUnknown(const std::string& image,
                                                      const std::set<ClientAddress>& seen) const {
  std::set<ClientAddress> unknown = SelectAlive(image, seen);
  std::erase_if(unknown, [&](const ClientAddress& client) {
    mu_.AssertHeld();
    return ClientsIn(known_, image).contains(client) || ClientsIn(left_open_, image).contains(client);
  });
  return unknown;
}

absl::Status GatewayClients::CheckOnlyOwn(const std::string& image,
                                          const std::set<ClientAddress>& seen) const {
  const absl::MutexLock lock(&mu_);
  const std::set<ClientAddress> unknown = SelectUnknown(image, seen);
  if (unknown.size() <= (left_opening_.contains(image) ? 1 : 0)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "image ", image, " is open elsewhere, by ", absl::StrJoin(unknown, ", "),
      " (`rbd status` shows it): end that program, but not this host's tgtd, which may be opening the image "
      "for another node: then try again. One that was killed is forgotten after 30 s"));
}

absl::StatusOr<ClientAddress> GatewayClients::TakeOpened(const std::string& image,
                                                         const std::set<ClientAddress>& before,
                                                         const std::set<ClientAddress>& seen) {
  const absl::MutexLock lock(&mu_);
  std::set<ClientAddress> opened = SelectUnknown(image, seen);
  for (const ClientAddress& client : before) opened.erase(client);
  if (opened.empty())
    return absl::UnavailableError(
        absl::StrCat("image ", image, ": tgtd has opened it, but is not seen to have it open; try again"));
  if (opened.size() > 1)
    return absl::FailedPreconditionError(absl::StrCat(
        "image ", image, " was opened elsewhere just when tgtd opened it: one of ",
        absl::StrJoin(opened, ", "), " is tgtd's (`rbd status` shows the other): end that program"));
  if (left_opening_.erase(image) > 0) left_open_[image] = SelectUnknown(image, before);
  return *opened.begin();
}

std::set<ClientAddress> GatewayClients::ClientsOf(const std::string& image) const {
  const absl::MutexLock lock(&mu_);
  return ClientsIn(known_, image);
}

bool GatewayClients::IsRegistered(const std::string& image) const {
  const absl::MutexLock lock(&mu_);
  return known_.contains(image);
}

void GatewayClients::NoteEnded(const std::string& image, const std::set<ClientAddress>& clients) {
  const absl::MutexLock lock(&mu_);
  const auto known = known_.find(image);
  const bool is_only_being_opened = known != known_.end() && known->second.empty();
  if (clients.empty() && (!is_only_being_opened || left_opening_.contains(image))) return;
  ended_[image].insert(clients.begin(), clients.end());
}

ImageClients GatewayClients::ended() const {
  const absl::MutexLock lock(&mu_);
  return ended_;
}

bool GatewayClients::HasAlive() const {
  const absl::MutexLock lock(&mu_);
  return std::ranges::any_of(known_, [this](const auto& image) {
    mu_.AssertHeld();
    return !SelectAlive(image.first, image.second).empty();
  });
}

// One that had ended in the time of an earlier agent is found too, if that one shut it out and died before it
// forgot it. Then the image is opened anew for nothing.
absl::StatusOr<std::set<std::string>> GatewayClients::FindShutOut() {
  std::set<std::string> images;
  if (!HasAlive()) return images;
  ASSIGN_OR_RETURN(const std::set<ClientAddress> blocked, blocklist_.ListNew());
  const absl::MutexLock lock(&mu_);
  for (const auto& [image, clients] : known_) {
    for (const ClientAddress& client : SelectAlive(image, clients))
      if (blocked.contains(client)) images.insert(image);
  }
  if (!images.empty()) blocklist_.LookAgain();
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

void GatewayClients::KeepEnded(ImageClients& ended) const {
  std::erase_if(ended, [this](const auto& image) {
    mu_.AssertHeld();
    return !ended_.contains(image.first);
  });
}

void GatewayClients::EraseEnded(ImageClients& ended, ImageClients& images) const {
  const absl::MutexLock lock(&mu_);
  KeepEnded(ended);
  EraseClients(ended, images);
}

// One may have been opened anew while the record was changed; its own change then waits for that one.
void GatewayClients::ForgetEnded(ImageClients ended) {
  const absl::MutexLock lock(&mu_);
  KeepEnded(ended);
  EraseKnown(ended);
}

void GatewayClients::ForgetClients(const ImageClients& gone) {
  const absl::MutexLock lock(&mu_);
  EraseKnown(gone);
}

void GatewayClients::EraseKnown(const ImageClients& gone) {
  EraseClients(gone, known_);
  EraseClients(gone, ended_);
  for (const auto& [image, clients] : gone)
    if (clients.empty()) left_opening_.erase(image);
}

}  // namespace lunkeeper
