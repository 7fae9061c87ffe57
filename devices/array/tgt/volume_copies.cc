// A copy ends in one of three ways:
//   done         the row becomes ready, the file gets its name, and the source is free for waiting nodes
//   failed       the row is deleted, however often that has to be tried; the caller that waits gets the
//                error, and may ask again
//   given up     the program stops: the row stays as it is, and ResumeCopies begins anew at the next start
#include "devices/array/tgt/volume_copies.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kDeleteAgain = absl::Seconds(1);
constexpr absl::Duration kLookForStop = absl::Milliseconds(50);

}  // namespace

// A copy waits for others, perhaps for hours, and one that is resumed has lost its reservation; nodes write
// on all the while. Their writes must not fail for it.
absl::Status VolumeCopies::CopyWithRoom(const std::string& from, const std::string& to, uint64_t size_bytes,
                                        Provisioning provisioning,
                                        const CopyQueue::Progress& progress) const {
  const std::string what = absl::StrCat("copy to ", to);
  const bool thick = provisioning == Provisioning::kThick;
  ASSIGN_OR_RETURN(const uint64_t data, images_.MeasureImage(from));
  RETURN_IF_ERROR(room_.CheckFree(what, thick ? size_bytes : data));
  absl::Status room;
  const auto go_on = [&](uint64_t done_bytes) {
    if (!thick) room = room_.CheckFree(what, 0);  // a thick one has taken its space
    return room.ok() && progress(done_bytes);
  };
  const absl::Status copied = images_.CopyImage(from, to, size_bytes, provisioning, go_on);
  return room.ok() ? copied : room;
}

absl::Status VolumeCopies::EndCopy(absl::Status copied, const std::string& path, const RowChange& set_ready,
                                   const RowChange& delete_row, const CopyQueue::Progress& progress) const {
  const bool whole = copied.ok();
  if (whole) copied = set_ready();
  if (copied.ok()) return images_.KeepImage(path);
  // First, as its room may be what the catalogue lacks. But what could not be said to be ready may be so.
  if (!whole) images_.DropNewImage(path);
  const bool deleted = DeleteRow(delete_row, path, progress);
  if (whole && deleted) images_.DropNewImage(path);
  return copied;
}

// The catalogue may be full, or locked. A row that stayed would be a copy under way until the next start,
// which nobody could delete, nor ask for again. The queue waits: the end of another copy could not be stored
// either.
bool VolumeCopies::DeleteRow(const RowChange& delete_row, const std::string& path,
                             const CopyQueue::Progress& progress) const {
  for (absl::Status deleted = delete_row(); !deleted.ok(); deleted = delete_row()) {
    LogWarn("array", "a failed copy could not be taken out of the catalogue; trying again",
            {{"image", path}, {"error", std::string(deleted.message())}});
    for (const SteadyDeadline again(kDeleteAgain); !again.IsOver(); absl::SleepFor(kLookForStop))
      if (!progress(0)) return false;
  }
  return true;
}

void VolumeCopies::BeginVolumeCopy(const VolumeRow& row, const std::string& from,
                                   std::shared_ptr<void> room) {
  const auto copy = [this, row, from, room = std::move(room)](const CopyQueue::Progress& progress) {
    const Volume& volume = row.volume;
    const std::string path = images_.VolumePath(volume.id);
    absl::Status status =
        CopyWithRoom(from, path, volume.spec.size_bytes, volume.spec.provisioning, progress);
    if (absl::IsCancelled(status)) return status;
    status = EndCopy(
        status, path, [&] { return catalogue_.volumes().SetVolumeReady(volume.id); },
        [&] { return catalogue_.volumes().DeleteVolume(volume.id); }, progress);
    gates_.WakeWaiters(volume.spec.source_volume);
    return status;
  };
  queue_.BeginCopy(row.volume.id.value(), row.volume.spec.size_bytes, copy);
}

void VolumeCopies::BeginSnapshotCopy(const SnapshotRow& row, std::shared_ptr<void> room) {
  const auto copy = [this, row, room = std::move(room)](const CopyQueue::Progress& progress) {
    const Snapshot& snapshot = row.snapshot;
    const std::string path = images_.SnapshotPath(snapshot.source, snapshot.id);
    absl::Status status = CopyWithRoom(images_.VolumePath(snapshot.source), path, snapshot.size_bytes,
                                       Provisioning::kThin, progress);
    if (absl::IsCancelled(status)) return status;
    status = EndCopy(
        status, path, [&] { return catalogue_.volumes().SetSnapshotReady(snapshot.id); },
        [&] { return catalogue_.volumes().DeleteSnapshot(snapshot.id); }, progress);
    gates_.WakeWaiters(snapshot.source);
    return status;
  };
  queue_.BeginCopy(row.snapshot.id.value(), row.snapshot.size_bytes, copy);
}

absl::StatusOr<std::string> VolumeCopies::FindSource(const ClusterId& cluster, const VolumeSpec& spec) {
  if (!spec.source_volume.empty()) return images_.VolumePath(spec.source_volume);
  ASSIGN_OR_RETURN(const SnapshotRow row, catalogue_.volumes().FindSnapshot(cluster, spec.source_snapshot));
  return images_.SnapshotPath(row.snapshot.source, row.snapshot.id);
}

absl::StatusOr<bool> VolumeCopies::IsFinished(const std::string& path) const {
  const absl::Status found = images_.MeasureImage(path).status();
  if (absl::IsNotFound(found)) return false;
  RETURN_IF_ERROR(found);
  LogWarn("array", "a copy had ended when the catalogue says that it is under way, and is taken as it is",
          {{"image", path}});
  return true;
}

absl::Status VolumeCopies::EndFinished() {
  ASSIGN_OR_RETURN(const std::vector<VolumeRow> volumes, catalogue_.volumes().ListAllVolumes());
  for (const VolumeRow& row : volumes) {
    if (!row.copying) continue;
    ASSIGN_OR_RETURN(const bool finished, IsFinished(images_.VolumePath(row.volume.id)));
    if (finished) RETURN_IF_ERROR(catalogue_.volumes().SetVolumeReady(row.volume.id));
  }
  ASSIGN_OR_RETURN(const std::vector<SnapshotRow> snapshots, catalogue_.volumes().ListAllSnapshots());
  for (const SnapshotRow& row : snapshots) {
    const Snapshot& snapshot = row.snapshot;
    if (snapshot.ready) continue;
    ASSIGN_OR_RETURN(const bool finished, IsFinished(images_.SnapshotPath(snapshot.source, snapshot.id)));
    if (finished) RETURN_IF_ERROR(catalogue_.volumes().SetSnapshotReady(snapshot.id));
  }
  return absl::OkStatus();
}

absl::Status VolumeCopies::ResumeCopies() {
  ASSIGN_OR_RETURN(const std::vector<VolumeRow> volumes, catalogue_.volumes().ListAllVolumes());
  for (const VolumeRow& row : volumes) {
    const VolumeSpec& spec = row.volume.spec;
    if (!row.copying) continue;
    ASSIGN_OR_RETURN(const std::string from, FindSource(row.cluster, spec));
    BeginVolumeCopy(row, from);
  }
  ASSIGN_OR_RETURN(const std::vector<SnapshotRow> snapshots, catalogue_.volumes().ListAllSnapshots());
  for (const SnapshotRow& row : snapshots) {
    if (!row.snapshot.ready) BeginSnapshotCopy(row);
  }
  return absl::OkStatus();
}

absl::Status VolumeCopies::WaitForCopy(const std::string& id, absl::Time deadline) {
  return queue_.WaitForCopy(id, deadline);
}

}  // namespace lunkeeper
