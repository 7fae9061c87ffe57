#include "devices/array/snapshot_blocks.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

absl::Status CheckReady(const Snapshot& snapshot) {
  if (snapshot.ready) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("snapshot ", snapshot.id.value(), ": it is still being copied; try again"));
}

}  // namespace

absl::Status CheckBlockQuery(const BlockQuery& query, const Snapshot& snapshot, const Snapshot* base) {
  RETURN_IF_ERROR(CheckReady(snapshot));
  if (base != nullptr) {
    RETURN_IF_ERROR(CheckReady(*base));
    const std::string both =
        absl::StrCat("snapshot ", snapshot.id.value(), ": its base ", base->id.value(), " is ");
    if (base->source != snapshot.source)
      return absl::InvalidArgumentError(
          absl::StrCat(both, "of volume ", base->source.value(), ", not of ", snapshot.source.value()));
    if (base->created >= snapshot.created)
      return absl::InvalidArgumentError(absl::StrCat(both, "not older; name the older one as base"));
  }
  if (query.offset <= snapshot.size_bytes) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("snapshot ", snapshot.id.value(), ": offset ", query.offset,
                                            " is behind its end, ", snapshot.size_bytes));
}

}  // namespace lunkeeper
