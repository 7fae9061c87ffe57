#include "devices/array/tgt/tgt_names.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper {

// Under the lock of the calls that make such an object: their row comes last.
absl::StatusOr<std::string> TgtNames::FindNamed(NamedKind kind, const std::string& name) {
  RETURN_IF_ERROR(parts_.check_serving());
  VolumeCatalogue& rows = parts_.catalogue.volumes();
  const auto lock = [&](const char* what) {
    return LockObject(parts_, absl::StrCat(what, " ", cluster_.value(), "/", name));
  };
  switch (kind) {
    case NamedKind::kVolume: {
      ASSIGN_OR_RETURN(const auto guard, lock("volume"));
      ASSIGN_OR_RETURN(const auto row, rows.FindVolumeNamed(cluster_, name));
      return row ? row->volume.id.value() : "";
    }
    case NamedKind::kSnapshot: {
      ASSIGN_OR_RETURN(const auto guard, lock("snapshot"));
      ASSIGN_OR_RETURN(const auto row, rows.FindSnapshotNamed(cluster_, name));
      return row ? row->snapshot.id.value() : "";
    }
    case NamedKind::kSnapshotGroup: {
      ASSIGN_OR_RETURN(const auto guard, lock("snapshot group"));
      ASSIGN_OR_RETURN(const auto group, rows.FindGroupNamed(cluster_, name));
      return group ? group->id.value() : "";
    }
  }
  return absl::InvalidArgumentError("find a name: of no kind that is known");
}

}  // namespace lunkeeper
