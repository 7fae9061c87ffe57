// The calls of a FakeArray that its FakeSnapshots answer, and the one that looks in both.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/array/testing/fake_array.h"

namespace lunkeeper {

absl::StatusOr<Snapshot> FakeArray::CreateSnapshot(const std::string& name, const VolumeId& source) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  ASSIGN_OR_RETURN(const Snapshot* made, snapshots_.FindMade(name, source));
  if (made != nullptr) return *made;
  ASSIGN_OR_RETURN(const VolumeEntry* entry, Find(source));
  return snapshots_.Add(name, entry->volume);
}

absl::Status FakeArray::DeleteSnapshot(const SnapshotId& id) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  return snapshots_.Delete(id);
}

absl::StatusOr<Snapshot> FakeArray::GetSnapshot(const SnapshotId& id) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  return snapshots_.Get(id);
}

absl::StatusOr<Page<Snapshot>> FakeArray::ListSnapshots(const VolumeId& source, const std::string& token,
                                                        size_t limit) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  return snapshots_.List(source, token, limit);
}

absl::StatusOr<SnapshotGroup> FakeArray::CreateGroup(const std::string& name,
                                                     const std::vector<VolumeId>& sources) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  RETURN_IF_ERROR(CheckGroupSources(name, sources));
  ASSIGN_OR_RETURN(const SnapshotGroup* made, snapshots_.FindMadeGroup(name, sources));
  if (made != nullptr) return *made;
  std::vector<Volume> volumes;
  for (const VolumeId& source : sources) {
    ASSIGN_OR_RETURN(const VolumeEntry* entry, Find(source));
    volumes.push_back(entry->volume);
  }
  return snapshots_.AddGroup(name, volumes);
}

absl::Status FakeArray::DeleteGroup(const SnapshotGroupId& id) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  return snapshots_.DeleteGroup(id);
}

absl::StatusOr<SnapshotGroup> FakeArray::GetGroup(const SnapshotGroupId& id) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  return snapshots_.GetGroup(id);
}

absl::StatusOr<BlockPage> FakeArray::ListBlocks(const BlockQuery& query) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  return snapshots_.ListBlocks(query);
}

absl::StatusOr<std::string> FakeArray::FindNamed(NamedKind kind, const std::string& name) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  if (kind != NamedKind::kVolume) return snapshots_.FindNamed(kind, name);
  const auto it = volume_names_.find(name);
  return it == volume_names_.end() ? "" : it->second.value();
}

}  // namespace lunkeeper
