// What is compared is what Kubernetes' binder compares (pkg/controller/volume/persistentvolume,
// checkVolumeSatisfyClaim) and `import` could get wrong: volumeMode, access modes, size. The StorageClass is
// taken from the claim itself.
#include "plugin/claim_fit.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "fencing/kube/quantity.h"

namespace lunkeeper {
namespace {

using kube::FieldAt;
using kube::Json;
using kube::TextAt;

absl::Status Misfit(const Json& claim, const Json& volume, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat(
      "claim ", TextAt(claim, {"metadata", "namespace"}), "/", TextAt(claim, {"metadata", "name"}),
      " would not be bound to PersistentVolume ", TextAt(volume, {"metadata", "name"}), ": ", why,
      ". Is it the right claim? Otherwise make it anew, so that it fits"));
}

absl::Status CheckModes(const Json& claim, const Json& volume) {
  if (VolumeModeOf(claim) != VolumeModeOf(volume))
    return Misfit(claim, volume,
                  absl::StrCat("it asks for volumeMode ", VolumeModeOf(claim), ", and the volume is for ",
                               VolumeModeOf(volume)));
  const Json& has = FieldAt(volume, {"spec", "accessModes"});
  for (const Json& mode : FieldAt(claim, {"spec", "accessModes"}))
    if (std::find(has.begin(), has.end(), mode) == has.end())
      return Misfit(
          claim, volume,
          absl::StrCat("it asks for ", kube::ToText(mode), ", and the volume is for ", kube::ToText(has)));
  return absl::OkStatus();
}

// Of a claim that names its volume Kubernetes does not ask this, and the resizer makes it as large.
absl::Status CheckSize(const Json& claim, const Json& volume) {
  if (!TextAt(claim, {"spec", "volumeName"}).empty()) return absl::OkStatus();
  const std::string wants = TextAt(claim, {"spec", "resources", "requests", "storage"});
  const std::string has = TextAt(volume, {"spec", "capacity", "storage"});
  // What cannot be read is left to the API server, which refuses it with a better text.
  const std::optional<double> least = kube::ParseQuantity(wants), size = kube::ParseQuantity(has);
  if (!least || !size || *least <= *size) return absl::OkStatus();
  return Misfit(claim, volume, absl::StrCat("it asks for ", wants, ", and the volume has ", has));
}

}  // namespace

std::string VolumeModeOf(const Json& claim) {
  const std::string mode = TextAt(claim, {"spec", "volumeMode"});
  return mode.empty() ? kFilesystemMode : mode;
}

absl::Status CheckFits(const Json& claim, const Json& persistent_volume) {
  RETURN_IF_ERROR(CheckModes(claim, persistent_volume));
  return CheckSize(claim, persistent_volume);
}

}  // namespace lunkeeper
