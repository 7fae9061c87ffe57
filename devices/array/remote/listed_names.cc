#include "devices/array/remote/listed_names.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/status_macros.h"

namespace lunkeeper {
namespace {

template <class Item>
using ListPage = std::function<absl::StatusOr<Page<Item>>(const std::string& token)>;

// The id of the first item that `is_it`, which is asked for each until then; empty: none.
template <class Item>
absl::StatusOr<std::string> FindInPages(const ListPage<Item>& list,
                                        const std::function<bool(const Item&)>& is_it) {
  std::string token;
  do {
    ASSIGN_OR_RETURN(const Page<Item> page, list(token));
    const auto found = std::ranges::find_if(page.items, is_it);
    if (found != page.items.end()) return found->id.value();
    token = page.next_token;
  } while (!token.empty());
  return std::string();
}

// Groups are in no list of their own, but their snapshots are in that of snapshots.
absl::StatusOr<std::string> FindListedGroup(const ListPage<Snapshot>& list_snapshots, SnapshotGroups& groups,
                                            const std::string& name) {
  std::set<SnapshotGroupId> ids;
  const auto collect = [&](const Snapshot& snapshot) {
    if (!snapshot.group.empty()) ids.insert(snapshot.group);
    return false;
  };
  RETURN_IF_ERROR(FindInPages<Snapshot>(list_snapshots, collect).status());
  for (const SnapshotGroupId& id : ids) {
    const auto group = groups.GetGroup(id);
    if (absl::IsNotFound(group.status())) continue;  // deleted meanwhile
    RETURN_IF_ERROR(group.status());
    if (group->name == name) return id.value();
  }
  return std::string();
}

}  // namespace

absl::StatusOr<std::string> FindListed(VolumeStore& volumes, SnapshotGroups& groups, NamedKind kind,
                                       const std::string& name) {
  if (kind == NamedKind::kVolume)
    return FindInPages<Volume>([&](const std::string& token) { return volumes.ListVolumes(token, 0); },
                               [&](const Volume& volume) { return volume.spec.name == name; });
  const ListPage<Snapshot> list_snapshots = [&](const std::string& token) {
    return volumes.ListSnapshots({}, token, 0);
  };
  if (kind == NamedKind::kSnapshotGroup) return FindListedGroup(list_snapshots, groups, name);
  return FindInPages<Snapshot>(list_snapshots,
                               [&](const Snapshot& snapshot) { return snapshot.name == name; });
}

}  // namespace lunkeeper
