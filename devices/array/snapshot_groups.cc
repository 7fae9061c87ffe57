#include "devices/array/snapshot_groups.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace lunkeeper {

absl::Status CheckGroupSources(const std::string& name, const std::vector<VolumeId>& sources) {
  if (name.empty()) return absl::InvalidArgumentError("create snapshot group: it has no name");
  if (sources.empty())
    return absl::InvalidArgumentError(absl::StrCat("snapshot group ", name, ": it names no volume"));
  if (sources.size() > kMostInGroup)
    return absl::InvalidArgumentError(absl::StrCat("snapshot group ", name, ": ", sources.size(),
                                                   " volumes, and a group has at most ", kMostInGroup));
  std::set<VolumeId> named;
  for (const VolumeId& source : sources)
    if (!named.insert(source).second)
      return absl::InvalidArgumentError(
          absl::StrCat("snapshot group ", name, ": it names volume ", source.value(), " twice"));
  return absl::OkStatus();
}

bool IsGroupOf(const SnapshotGroup& group, const std::vector<VolumeId>& sources) {
  std::set<VolumeId> have;
  for (const Snapshot& snapshot : group.snapshots) have.insert(snapshot.source);
  return have == std::set<VolumeId>(sources.begin(), sources.end());
}

}  // namespace lunkeeper
