#include "devices/array/tgt/ended_clients.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace lunkeeper {
namespace {

// The clients before the rows: another LUN that is opened meanwhile has its row before it has a client.
void EndUnlessOpen(Catalogue& catalogue, const ImageStore& images, const GrantRow& grant,
                   absl::FunctionRef<bool(const GrantRow&)> may_be_open) {
  const std::string path = images.VolumePath(grant.volume);
  if (!images.IsRegistered(path)) return;
  const std::set<std::string> clients = images.ListClients(path);
  const auto grants = catalogue.grants().ListGrants(grant.cluster, {.volume = grant.volume, .node = {}});
  if (grants.ok() && std::ranges::none_of(*grants, may_be_open)) images.EndClients(path, clients);
}

}  // namespace

// An error leaves them registered, which is safe.
void EndClientsOfTgtd(Catalogue& catalogue, const ImageStore& images, int tgtd) {
  const absl::StatusOr<std::vector<GrantRow>> grants = catalogue.grants().ListGrantsOfTgtd(tgtd);
  if (!grants.ok()) return;
  for (const GrantRow& grant : *grants)
    EndUnlessOpen(catalogue, images, grant, [tgtd](const GrantRow& other) { return other.tgtd != tgtd; });
}

void EndClientsOfClosed(Catalogue& catalogue, const ImageStore& images, const GrantRow& grant) {
  EndUnlessOpen(catalogue, images, grant,
                [&grant](const GrantRow& other) { return other.generation != grant.generation; });
}

void LunClients::NoteOpened(const ImageStore& images, const GrantRow& grant, const std::string& client) {
  EndClient(images, grant);
  const absl::MutexLock lock(&mu_);
  clients_[grant.generation] = client;
}

bool LunClients::EndClient(const ImageStore& images, const GrantRow& grant) {
  std::string client;
  {
    const absl::MutexLock lock(&mu_);
    const auto own = clients_.extract(grant.generation);
    if (own.empty()) return false;
    client = own.mapped();
  }
  const std::string path = images.VolumePath(grant.volume);
  if (images.ListClients(path).contains(client)) images.EndClients(path, {client});
  return true;
}

bool LunClients::Knows(const GrantRow& grant) const {
  const absl::MutexLock lock(&mu_);
  return clients_.contains(grant.generation);
}

void LunClients::ForgetLun(const GrantRow& grant) {
  const absl::MutexLock lock(&mu_);
  clients_.erase(grant.generation);
}

}  // namespace lunkeeper
