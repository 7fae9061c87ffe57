// Every volume that is named is found before anything is changed, so that a mistyped name changes nothing.
// The leader is not called: its watch of PersistentVolumes shows it that the annotation has gone.
#include "fencing/failover/allow_volume.h"

#include <algorithm>
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

// kubectl shows the object's name, and our own messages show the volume's id.
bool IsCalled(const Json& object, const std::string& volume) {
  return TextAt(object, {"metadata", "name"}) == volume ||
         TextAt(object, {"spec", "csi", "volumeHandle"}) == volume;
}

std::string DiedOf(const Json& object) {
  return TextAt(object, {"metadata", "annotations", kMountDeathsKey});
}

// Of this very object: one that was deleted and made anew is another volume.
absl::Status TakeAway(kube::KubeClient& client, const Json& object, absl::Time deadline) {
  return client
      .Patch({kPersistentVolumes, "", TextAt(object, {"metadata", "name"})},
             {{"metadata", {{"annotations", {{kMountDeathsKey, nullptr}}}}}},
             {.uid = TextAt(object, {"metadata", "uid"})}, {deadline})
      .status();
}

using PrintLine = std::function<void(const std::string& line)>;

absl::Status AllowOne(kube::KubeClient& client, const Json& object, const std::string& volume,
                      absl::Time deadline, const PrintLine& print_line) {
  const std::string nodes = DiedOf(object);
  if (nodes.empty()) {
    print_line(absl::StrCat("volume ", volume, " is not held back by what is stored. If `lunkeeper status` ",
                            "says that it is, the leader could not store that yet: repeat this then"));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(TakeAway(client, object, deadline));
  print_line(absl::StrCat("volume ", volume, " may be moved again; these nodes died soon after they ",
                          "mounted it: ", nodes));
  return absl::OkStatus();
}

absl::Status AllowAll(kube::KubeClient& client, const std::vector<Json>& objects, absl::Time deadline,
                      const PrintLine& print_line) {
  bool none = true;
  for (const Json& object : objects) {
    if (DiedOf(object).empty()) continue;
    none = false;
    RETURN_IF_ERROR(
        AllowOne(client, object, TextAt(object, {"spec", "csi", "volumeHandle"}), deadline, print_line));
  }
  if (none) print_line("no volume is held back by what is stored");
  return absl::OkStatus();
}

}  // namespace

absl::Status AllowVolumes(kube::KubeClient& client, const std::vector<std::string>& volumes,
                          absl::Time deadline, const PrintLine& print_line) {
  ASSIGN_OR_RETURN(std::vector<Json> objects, kube::ListAll(client, {kPersistentVolumes}, {deadline}));
  std::erase_if(objects, [](const Json& object) {
    return TextAt(object, {"spec", "csi", "driver"}) != kDriverName;
  });
  if (volumes.empty()) return AllowAll(client, objects, deadline, print_line);
  std::vector<const Json*> meant;
  for (const std::string& volume : volumes) {
    const auto found =
        std::ranges::find_if(objects, [&](const Json& each) { return IsCalled(each, volume); });
    if (found == objects.end())
      return absl::NotFoundError(
          absl::StrCat("no PersistentVolume of Lunkeeper's is called ", volume,
                       ", nor has one that id; `lunkeeper volumes` lists them. Nothing was changed"));
    meant.push_back(&*found);
  }
  for (size_t i = 0; i < volumes.size(); ++i)
    RETURN_IF_ERROR(AllowOne(client, *meant[i], volumes[i], deadline, print_line));
  return absl::OkStatus();
}

}  // namespace lunkeeper::fencing
