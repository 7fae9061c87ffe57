// The order of files and rows is that of single snapshots (tgt_volumes.cc), for all of a group at once:
//
//   create   every ID.new, empty -> flush -> barrier: reflinks -> sync -> all rows in one change -> every ID
//   delete   every ID.gone -> all rows in one change -> unlink
//
// So a call that is killed at any line leaves files without rows, which the next start deletes, or the whole
// group. The barrier itself cannot be left behind (tgtd_pause.h).
//
// Why it is consistent: a volume's file has every write that its initiator got an answer to (tgtd answers
// after its write to the file), flushed to the disk or not. Inside the barrier no answer leaves tgtd, so no
// node can begin a write that depends on one which is only half in. What a thread of tgtd still writes
// meanwhile was answered to nobody, and may be in or not, as after a power cut.
#include "devices/array/tgt/tgt_groups.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// Well below kLongestPause, of which the stop of tgtd takes a part, and a busy disk.
constexpr std::chrono::milliseconds kMostInside(500);
// Writers that leave the disk time are caught up with in this.
constexpr absl::Duration kInStep = absl::Seconds(1);

bool IsThick(const VolumeRow& row) { return row.volume.spec.provisioning == Provisioning::kThick; }

absl::Status NoReflinks(const std::string& name) {
  return absl::FailedPreconditionError(absl::StrCat(
      "snapshot group ", name,
      ": the pool's file system cannot reflink, and copies of several volumes are not of one moment; put the "
      "pool on XFS or btrfs, or stop what writes to these volumes and snapshot them one by one"));
}

}  // namespace

absl::StatusOr<SnapshotGroup> TgtGroups::CreateGroup(const std::string& name,
                                                     const std::vector<VolumeId>& sources) {
  RETURN_IF_ERROR(parts_.check_serving());
  RETURN_IF_ERROR(CheckGroupSources(name, sources));
  ASSIGN_OR_RETURN(const auto guard,
                   LockObject(parts_, absl::StrCat("snapshot group ", cluster_.value(), "/", name)));
  ASSIGN_OR_RETURN(auto group, parts_.catalogue.volumes().FindGroupNamed(cluster_, name));
  if (group.has_value() && !IsGroupOf(*group, sources)) {
    return absl::AlreadyExistsError(absl::StrCat("snapshot group ", name, ": the name is taken by ",
                                                 group->id.value(),
                                                 ", which is of other volumes; choose another"));
  }
  if (!group.has_value()) {
    ASSIGN_OR_RETURN(group, MakeGroup(name, sources));
  }
  parts_.RememberSequence();
  RETURN_IF_ERROR(KeepFiles(*group));
  return *std::move(group);
}

absl::StatusOr<SnapshotGroup> TgtGroups::MakeGroup(const std::string& name,
                                                   const std::vector<VolumeId>& sources) {
  ASSIGN_OR_RETURN(const auto locks, LockVolumes(sources));
  ASSIGN_OR_RETURN(const std::vector<VolumeRow> rows, FindSources(sources));
  if (!parts_.images.can_clone()) return NoReflinks(name);
  ASSIGN_OR_RETURN(const auto room, ReserveRoom(name, rows));
  SnapshotGroup group = DescribeGroup(name, rows);
  ASSIGN_OR_RETURN(const auto clones, parts_.images.MakeClones(DescribeClones(group, rows)));
  FAIL_POINT("array.group.files_made");
  RETURN_IF_ERROR(CloneAtOneMoment(*clones, group));
  RETURN_IF_ERROR(clones->Complete());
  FAIL_POINT("array.group.completed");
  RETURN_IF_ERROR(parts_.catalogue.volumes().InsertGroup(cluster_, group));
  clones->Keep();
  FAIL_POINT("array.group.stored");
  return group;
}

absl::StatusOr<std::vector<KeyedLock::Guard>> TgtGroups::LockVolumes(const std::vector<VolumeId>& sources) {
  std::vector<KeyedLock::Guard> guards;
  for (const VolumeId& source : sources) {
    ASSIGN_OR_RETURN(auto guard, LockObject(parts_, absl::StrCat("volume ", source.value())));
    guards.push_back(std::move(guard));
  }
  return guards;
}

absl::StatusOr<std::vector<VolumeRow>> TgtGroups::FindSources(const std::vector<VolumeId>& sources) {
  std::vector<VolumeRow> rows;
  for (const VolumeId& source : sources) {
    ASSIGN_OR_RETURN(VolumeRow row, parts_.catalogue.volumes().FindVolume(cluster_, source));
    if (row.copying)
      return absl::AbortedError(
          absl::StrCat("volume ", source.value(), ": it is still being copied; try again"));
    ASSIGN_OR_RETURN(row.volume.spec.size_bytes, ReadShownSize(parts_, row.volume));
    rows.push_back(std::move(row));
  }
  return rows;
}

absl::StatusOr<PoolRoom::Reservation> TgtGroups::ReserveRoom(const std::string& name,
                                                             const std::vector<VolumeRow>& sources) {
  uint64_t promised = 0, taken = 0;
  for (const VolumeRow& row : sources) {
    promised += row.volume.spec.size_bytes;
    if (!IsThick(row)) continue;
    ASSIGN_OR_RETURN(const uint64_t copied,
                     parts_.images.MeasureImage(parts_.images.VolumePath(row.volume.id)));
    taken += copied;
  }
  return parts_.room.Reserve(cluster_, absl::StrCat("snapshot group ", name), promised, taken);
}

SnapshotGroup TgtGroups::DescribeGroup(const std::string& name, const std::vector<VolumeRow>& sources) const {
  SnapshotGroup group;
  group.id = SnapshotGroupId(absl::StrCat(parts_.options.name, "-g", RandomHexDigits()));
  group.name = name;
  for (const VolumeRow& row : sources) {
    Snapshot& snapshot = group.snapshots.emplace_back();
    snapshot.id = SnapshotId(absl::StrCat(parts_.options.name, "-s", RandomHexDigits()));
    // Nobody else's, since it has the group's id.
    snapshot.name = absl::StrCat(group.id.value(), "/", row.volume.id.value());
    snapshot.source = row.volume.id;
    snapshot.size_bytes = row.volume.spec.size_bytes;
    snapshot.ready = true;
    snapshot.group = group.id;
  }
  std::ranges::sort(group.snapshots, {}, &Snapshot::id);
  return group;
}

std::vector<PoolClone> TgtGroups::DescribeClones(const SnapshotGroup& group,
                                                 const std::vector<VolumeRow>& sources) const {
  std::vector<PoolClone> clones;
  for (const Snapshot& snapshot : group.snapshots) {
    const auto row =
        std::ranges::find(sources, snapshot.source, [](const VolumeRow& each) { return each.volume.id; });
    clones.push_back({.from = parts_.images.VolumePath(snapshot.source),
                      .to = parts_.images.SnapshotPath(snapshot.source, snapshot.id),
                      .size_bytes = snapshot.size_bytes,
                      .own_space = IsThick(*row)});
  }
  return clones;
}

absl::Status TgtGroups::CloneAtOneMoment(PoolClones& clones, SnapshotGroup& group) {
  // Most is shared here, where nobody waits, however long it takes; and what has changed meanwhile, just
  // before the barrier. Writers that are faster than that are slowed down there. What would take too long
  // inside all the same is refused, so that repeated calls do not hold all volumes again and again in vain.
  RETURN_IF_ERROR(clones.ShareOnce());
  const auto share_changes = [&clones](WriteThrottle& throttle) -> absl::Status {
    if (clones.CanCatchUp()) throttle.StartAfter(kInStep);
    RETURN_IF_ERROR(clones.ShareMost());
    return clones.CheckLastRound(kMostInside);
  };
  RETURN_IF_ERROR(parts_.barrier.RunInside(share_changes, [&](TgtdPause::Clock::time_point end) {
    group.created = absl::Now();
    return clones.ShareAll(end);
  }));
  FAIL_POINT("array.group.shared");
  for (Snapshot& snapshot : group.snapshots) snapshot.created = group.created;
  return absl::OkStatus();
}

absl::Status TgtGroups::KeepFiles(const SnapshotGroup& group) {
  for (const Snapshot& snapshot : group.snapshots)
    RETURN_IF_ERROR(parts_.images.KeepImage(parts_.images.SnapshotPath(snapshot.source, snapshot.id)));
  return absl::OkStatus();
}

absl::Status TgtGroups::DeleteGroup(const SnapshotGroupId& id) {
  RETURN_IF_ERROR(parts_.check_serving());
  ASSIGN_OR_RETURN(const auto guard, LockObject(parts_, absl::StrCat("snapshot group ", id.value())));
  const auto group = parts_.catalogue.volumes().FindGroup(cluster_, id);
  if (absl::IsNotFound(group.status())) return absl::OkStatus();
  RETURN_IF_ERROR(group.status());
  const auto for_each = [&](absl::Status (ImageStore::*work)(const std::string&) const) -> absl::Status {
    absl::Status status;
    for (const Snapshot& snapshot : group->snapshots)
      status.Update((parts_.images.*work)(parts_.images.SnapshotPath(snapshot.source, snapshot.id)));
    return status;
  };
  const auto condemn = [&]() -> absl::Status {
    RETURN_IF_ERROR(for_each(&ImageStore::MarkDeleted));
    FAIL_POINT("array.delete_group.files_condemned");
    return absl::OkStatus();
  };
  absl::Status deleted = for_each(&ImageStore::PrepareDeletion);
  if (deleted.ok()) deleted = parts_.catalogue.volumes().DeleteGroup(id, condemn);
  if (!deleted.ok()) RETURN_IF_ERROR(for_each(&ImageStore::UnmarkDeleted));
  RETURN_IF_ERROR(deleted);
  FAIL_POINT("array.delete_group.rows_deleted");
  RETURN_IF_ERROR(for_each(&ImageStore::RemoveMarked));
  parts_.RememberSequence();
  return absl::OkStatus();
}

absl::StatusOr<SnapshotGroup> TgtGroups::GetGroup(const SnapshotGroupId& id) {
  RETURN_IF_ERROR(parts_.check_serving());
  return parts_.catalogue.volumes().FindGroup(cluster_, id);
}

}  // namespace lunkeeper
