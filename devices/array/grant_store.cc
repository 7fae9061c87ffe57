#include "devices/array/grant_store.h"

#include "absl/strings/str_cat.h"

namespace lunkeeper {

absl::Status NotMadeFor(const GrantRequest& request, const VolumeUses& uses) {
  const char* const mode = request.mode == VolumeMode::kBlock        ? " block"
                           : request.mode == VolumeMode::kFilesystem ? " filesystem"
                                                                     : "";
  return absl::FailedPreconditionError(absl::StrCat("volume ", request.volume.value(), ": it was made for ",
                                                    uses.ToText(), ", not for ", ToText(request.access), mode,
                                                    "; make a volume with the capability that is needed"));
}

}  // namespace lunkeeper
