#include "fencing/failover/allow_volume.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/driver.h"
#include "base/status_macros.h"
#include "fencing/failover/facts.h"
#include "fencing/kube/list_all.h"

namespace lunkeeper::fencing {
namespace {

using kube::Json;
using kube::TextAt;

bool IsMeant(const Json& object, const std::string& volume) {
  const bool ours = TextAt(object, {"spec", "csi", "driver"}) == kDriverName;
  return ours && (TextAt(object, {"metadata", "name"}) == volume ||
                  TextAt(object, {"spec", "csi", "volumeHandle"}) == volume);
}

// Of this very object: one that was deleted and made anew is another volume.
absl::Status TakeAway(kube::KubeClient& client, const Json& object, absl::Time deadline) {
  return client
      .Patch({kPersistentVolumes, "", TextAt(object, {"metadata", "name"})},
             {{"metadata", {{"annotations", {{kMountDeathsKey, nullptr}}}}}},
             {.uid = TextAt(object, {"metadata", "uid"})}, {deadline})
      .status();
}

}  // namespace

absl::Status AllowVolume(kube::KubeClient& client, const std::string& volume, absl::Time deadline,
                         const std::function<void(const std::string& line)>& print_line) {
  ASSIGN_OR_RETURN(const std::vector<Json> objects, kube::ListAll(client, {kPersistentVolumes}, {deadline}));
  for (const Json& object : objects) {
    if (!IsMeant(object, volume)) continue;
    const std::string nodes = TextAt(object, {"metadata", "annotations", kMountDeathsKey});
    if (nodes.empty()) {
      print_line(absl::StrCat("volume ", volume, " is not held back"));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(TakeAway(client, object, deadline));
    print_line(absl::StrCat("volume ", volume, " may be moved again; these nodes died soon after they ",
                            "mounted it: ", nodes));
    return absl::OkStatus();
  }
  return absl::NotFoundError(
      absl::StrCat("no PersistentVolume of Lunkeeper's is called ", volume,
                   ", nor has one that id; `lunkeeper volumes` lists them. Nothing was changed"));
}

}  // namespace lunkeeper::fencing
