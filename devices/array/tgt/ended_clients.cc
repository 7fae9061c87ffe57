#include "devices/array/tgt/ended_clients.h"

#include <algorithm>
#include <iterator>
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
  const std::set<std::string> clients = images.ListClients(path);
  if (clients.empty()) return;
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

// The rows last: a LUN that was opened before the look at the clients has its row by now.
void EndClientsNotSeen(Catalogue& catalogue, const ImageStore& images, const GrantRow& grant,
                       const std::set<std::string>& known, const std::set<std::string>& seen) {
  std::set<std::string> ended;
  std::ranges::set_difference(known, seen, std::inserter(ended, ended.end()));
  if (ended.empty()) return;
  const auto grants = catalogue.grants().ListGrants(grant.cluster, {.volume = grant.volume, .node = {}});
  if (grants.ok() && grants->size() == seen.size()) images.EndClients(images.VolumePath(grant.volume), ended);
}

}  // namespace lunkeeper
