#include "devices/array/testing/fake_snapshots.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "devices/array/testing/list_page.h"

namespace lunkeeper {

std::string FakeSnapshots::NextId(char kind) { return absl::StrFormat("%s-%c%016x", array_, kind, ++ids_); }

absl::StatusOr<const Snapshot*> FakeSnapshots::FindMade(const std::string& name,
                                                        const VolumeId& source) const {
  for (const auto& [id, snapshot] : snapshots_) {
    if (snapshot.name != name) continue;
    if (snapshot.source == source) return &snapshot;
    return absl::AlreadyExistsError(absl::StrCat(
        "create snapshot ", name, ": there is one of that name, of volume ", snapshot.source.value()));
  }
  return nullptr;
}

Snapshot FakeSnapshots::Add(const std::string& name, const Volume& source) {
  const SnapshotId id(NextId('s'));
  kept_[id] = written_[source.id];
  return snapshots_[id] = Snapshot{id, name, source.id, source.spec.size_bytes, absl::Now(), !hold_copies_};
}

absl::Status FakeSnapshots::Delete(const SnapshotId& id) {
  const auto it = snapshots_.find(id);
  if (it == snapshots_.end()) return absl::OkStatus();
  if (!it->second.group.empty())
    return absl::InvalidArgumentError(absl::StrCat("snapshot ", id.value(), ": it belongs to group ",
                                                   it->second.group.value(), " and is deleted with that"));
  snapshots_.erase(it);
  return absl::OkStatus();
}

absl::StatusOr<Snapshot> FakeSnapshots::Get(const SnapshotId& id) const {
  const auto it = snapshots_.find(id);
  if (it != snapshots_.end()) return it->second;
  return absl::NotFoundError(absl::StrCat("snapshot ", id.value(), ": there is none"));
}

absl::StatusOr<Page<Snapshot>> FakeSnapshots::List(const VolumeId& source, const std::string& token,
                                                   size_t limit) const {
  return ListPage<Snapshot>(snapshots_, token, limit, array_ + "-s", [&](const Snapshot& snapshot) {
    return source.empty() || snapshot.source == source ? &snapshot : nullptr;
  });
}

absl::StatusOr<const SnapshotGroup*> FakeSnapshots::FindMadeGroup(
    const std::string& name, const std::vector<VolumeId>& sources) const {
  for (const auto& [id, group] : groups_) {
    if (group.name != name) continue;
    if (IsGroupOf(group, sources)) return &group;
    return absl::AlreadyExistsError(
        absl::StrCat("snapshot group ", name, ": there is one of that name, of other volumes"));
  }
  return nullptr;
}

SnapshotGroup FakeSnapshots::AddGroup(const std::string& name, const std::vector<Volume>& sources) {
  SnapshotGroup group{
      .id = SnapshotGroupId(NextId('g')), .name = name, .created = absl::Now(), .snapshots = {}};
  for (const Volume& source : sources) {
    Snapshot member = Add(absl::StrCat(group.id.value(), "/", source.id.value()), source);
    member.group = group.id;
    member.created = group.created;
    snapshots_[member.id] = member;
    group.snapshots.push_back(std::move(member));
  }
  return groups_[group.id] = group;
}

absl::Status FakeSnapshots::DeleteGroup(const SnapshotGroupId& id) {
  std::erase_if(snapshots_, [&](const auto& item) { return !id.empty() && item.second.group == id; });
  groups_.erase(id);
  return absl::OkStatus();
}

FakeSnapshots::Blocks FakeSnapshots::Difference(const Blocks& a, const Blocks& b) {
  Blocks blocks;
  std::ranges::set_symmetric_difference(a, b, std::inserter(blocks, blocks.end()));
  return blocks;
}

absl::StatusOr<BlockPage> FakeSnapshots::ListBlocks(const BlockQuery& query) const {
  ASSIGN_OR_RETURN(const Snapshot snapshot, Get(query.snapshot));
  Blocks blocks = kept_.at(query.snapshot);
  if (query.base.empty()) {
    RETURN_IF_ERROR(CheckBlockQuery(query, snapshot, nullptr));
  } else {
    ASSIGN_OR_RETURN(const Snapshot base, Get(query.base));
    RETURN_IF_ERROR(CheckBlockQuery(query, snapshot, &base));
    blocks = Difference(kept_.at(query.base), blocks);
  }
  BlockPage page{.ranges = {}, .size_bytes = snapshot.size_bytes, .next_offset = snapshot.size_bytes};
  const size_t most = query.limit == 0 ? kMostBlockRanges : std::min(query.limit, kMostBlockRanges);
  for (const auto& [offset, write] : blocks) {
    const uint64_t begin = std::max(offset, query.offset), end = offset + kFakeBlock;
    if (begin >= end) continue;
    if (page.ranges.size() == most) {
      page.next_offset = begin;
      break;
    }
    page.ranges.push_back({begin, end - begin});
  }
  return page;
}

absl::StatusOr<SnapshotGroup> FakeSnapshots::GetGroup(const SnapshotGroupId& id) const {
  const auto it = groups_.find(id);
  if (it != groups_.end()) return it->second;
  return absl::NotFoundError(absl::StrCat("snapshot group ", id.value(), ": there is none"));
}

std::string FakeSnapshots::FindNamed(NamedKind kind, const std::string& name) const {
  const auto find = [&](const auto& all) {
    const auto named = [&](const auto& item) { return item.second.name == name; };
    const auto it = std::ranges::find_if(all, named);
    return it == all.end() ? std::string() : it->first.value();
  };
  return kind == NamedKind::kSnapshot ? find(snapshots_) : find(groups_);
}

}  // namespace lunkeeper
