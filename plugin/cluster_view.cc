// Each kind is listed as a whole, once for a command. Objects of other drivers are passed over.
#include "plugin/cluster_view.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/driver.h"
#include "base/status_macros.h"
#include "fencing/failover/facts.h"
#include "fencing/failover/record.h"
#include "fencing/kube/list_all.h"

namespace lunkeeper {
namespace {

using kube::Json;
using kube::TextAt;

// `read` puts an object's id and name into the map, if it is one of ours.
template <class Read>
absl::StatusOr<NamesById> ReadAll(kube::KubeClient& client, const kube::Resource& kind, absl::Time deadline,
                                  const Read& read) {
  ASSIGN_OR_RETURN(const auto objects, kube::ListAll(client, {kind}, {deadline}));
  NamesById names;
  for (const Json& object : objects) read(object, names);
  return names;
}

}  // namespace

absl::StatusOr<NamesById> ReadClaims(kube::KubeClient& client, absl::Time deadline) {
  return ReadAll(client, {"", "v1", "persistentvolumes"}, deadline, [](const Json& object, NamesById& names) {
    // A PersistentVolume has both names, its claim's and the array's. Claims themselves need not be listed.
    const auto facts = fencing::ReadVolume(object);
    if (facts && !facts->volume.empty()) names[facts->volume.value()] = facts->claim;
  });
}

absl::StatusOr<NamesById> ReadVolumeSnapshots(kube::KubeClient& client, absl::Time deadline) {
  return ReadAll(client, {"snapshot.storage.k8s.io", "v1", "volumesnapshotcontents"}, deadline,
                 [](const Json& object, NamesById& names) {
                   const std::string id = TextAt(object, {"status", "snapshotHandle"});
                   if (TextAt(object, {"spec", "driver"}) != kDriverName || id.empty()) return;
                   names[id] = absl::StrCat(TextAt(object, {"spec", "volumeSnapshotRef", "namespace"}), "/",
                                            TextAt(object, {"spec", "volumeSnapshotRef", "name"}));
                 });
}

absl::StatusOr<NamesById> ReadNodes(kube::KubeClient& client, absl::Time deadline) {
  return ReadAll(client, kube::kCsiNodes, deadline, [](const Json& object, NamesById& names) {
    if (const auto id = fencing::ReadNodeId(object))
      names[id->value()] = TextAt(object, {"metadata", "name"});
  });
}

absl::StatusOr<NamesById> ReadFencePhases(kube::KubeClient& client, absl::Time deadline) {
  return ReadAll(client, fencing::kNodeFences, deadline, [](const Json& object, NamesById& names) {
    names[TextAt(object, {"metadata", "name"})] = TextAt(object, {"status", "phase"});
  });
}

NamesById ReadNamesOrWarn(const MakeClient& cluster, ReadNames read, const char* what,
                          const AdminTarget& target) {
  const auto client = cluster();
  if (absl::IsFailedPrecondition(client.status())) return {};  // no pod of a cluster
  const auto names = client.ok() ? read(**client, absl::Now() + absl::Seconds(target.timeout_seconds))
                                 : absl::StatusOr<NamesById>(client.status());
  if (names.ok()) return *names;
  std::cerr << "lunkeeper: " << what << " are not shown: " << names.status().message() << '\n';
  return {};
}

}  // namespace lunkeeper
