// The order of files and rows is what makes these calls safe to kill at any line. A file comes before its row
// and goes after it, and has its own name, ID, only while the row is there. So a crash leaves at most an
// ID.new or an ID.gone without a row, which the next start deletes, or such a file with a row, which the next
// start gives its name. Only a long copy has its row first: the row is what begins the copy again.
//
//   create   ID.new -> row -> ID        delete   ID -> ID.gone -> row -> unlink
//   copy     row -> ID.new -> row ready -> ID        grow   file -> LUNs -> row
//   modify   row, after the file's sync for `sync`
#include "devices/array/tgt/tgt_volumes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/units.h"

namespace lunkeeper {
namespace {

// A page of a list, also when the caller names no limit: about 2 MiB as messages.
constexpr size_t kLargestPage = 10000;

// In the form of a UUID, because its 36 characters are exactly what tgtd has room for (SCSI_SN_LEN): it pads
// shorter serials with blanks, which initiators then report. `digits`: 32 of them.
std::string SerialFrom(const std::string& digits) {
  return absl::StrCat(digits.substr(0, 8), "-", digits.substr(8, 4), "-", digits.substr(12, 4), "-",
                      digits.substr(16, 4), "-", digits.substr(20, 12));
}

bool IsThick(Provisioning provisioning) { return provisioning == Provisioning::kThick; }

absl::Status CheckSize(const std::string& name, uint64_t size_bytes, Provisioning provisioning,
                       const PoolCapacity& capacity) {
  if (size_bytes > capacity.largest_volume_bytes ||
      (IsThick(provisioning) && size_bytes > capacity.total_bytes)) {
    return absl::OutOfRangeError(absl::StrCat("volume ", name, ": ", size_bytes,
                                              " bytes is more than the pool can give, ",
                                              std::min(capacity.largest_volume_bytes, capacity.total_bytes)));
  }
  return absl::OkStatus();
}

// To whole MiB: tgtd and file systems want whole blocks, and people count in MiB.
uint64_t RoundUp(uint64_t size_bytes) {
  if (size_bytes > UINT64_MAX - kMiB) return UINT64_MAX;
  return std::max(kMiB, (size_bytes + kMiB - 1) / kMiB * kMiB);
}

absl::Status CheckToken(const std::string& token, const std::string& prefix) {
  if (token.empty() || absl::StartsWith(token, prefix)) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("list: '", token, "' is no token of this array; begin again without one"));
}

// `rows` has one more than `limit` if there is another page; the last id of this page is the token of the
// next.
template <class Row, class Item>
Page<Item> PageOf(std::vector<Row> rows, size_t limit, Item Row::*item) {
  Page<Item> page;
  const bool more = rows.size() > limit;
  if (more) rows.resize(limit);
  for (Row& row : rows) page.items.push_back(std::move(row.*item));
  if (more) page.next_token = page.items.back().id.value();
  return page;
}

// Idempotency: the same call again finds its volume. By either size, because the volume may have grown since
// it was made, and because a caller may repeat with the size in the answer.
absl::StatusOr<Volume> AlreadyThere(const VolumeRow& row, const VolumeSpec& spec, uint64_t size_bytes) {
  if (IsMadeAs(row.volume.spec, spec) &&
      (row.asked_size_bytes == size_bytes || row.volume.spec.size_bytes == size_bytes))
    return row.volume;
  return absl::AlreadyExistsError(absl::StrCat("volume ", spec.name, ": the name is taken by ",
                                               row.volume.id.value(), ", of ", row.volume.spec.size_bytes,
                                               " bytes or with other parameters; choose another name"));
}

}  // namespace

absl::StatusOr<Volume> TgtVolumes::CreateVolume(const VolumeSpec& spec) {
  RETURN_IF_ERROR(parts_.check_serving());
  if (spec.name.empty()) return absl::InvalidArgumentError("create volume: it has no name");
  ASSIGN_OR_RETURN(const auto guard,
                   LockObject(parts_, absl::StrCat("volume ", cluster_.value(), "/", spec.name)));
  const uint64_t size_bytes = RoundUp(spec.size_bytes);
  ASSIGN_OR_RETURN(const auto existing, parts_.catalogue.volumes().FindVolumeNamed(cluster_, spec.name));
  VolumeId id;
  if (existing.has_value()) {
    RETURN_IF_ERROR(AlreadyThere(*existing, spec, size_bytes).status());
    id = existing->volume.id;
  } else {
    ASSIGN_OR_RETURN(const VolumeRow made, MakeVolume(spec, size_bytes));
    id = made.volume.id;
  }
  parts_.RememberSequence();
  RETURN_IF_ERROR(parts_.copies.WaitForCopy(id.value(), absl::Now() + parts_.options.copy_wait));
  ASSIGN_OR_RETURN(Volume volume, GetVolume(id));
  RETURN_IF_ERROR(parts_.images.KeepImage(parts_.images.VolumePath(id)));
  return volume;
}

absl::StatusOr<VolumeRow> TgtVolumes::MakeVolume(const VolumeSpec& spec, uint64_t asked_size_bytes) {
  ASSIGN_OR_RETURN(const PoolCapacity capacity, parts_.images.MeasureCapacity());
  RETURN_IF_ERROR(CheckSize(spec.name, asked_size_bytes, spec.provisioning, capacity));
  ASSIGN_OR_RETURN(const Source source, FindSource(spec));
  const bool own_space = source.thick || IsThick(spec.provisioning);
  ASSIGN_OR_RETURN(const uint64_t copied, MeasureCopy(source.path, own_space));
  ASSIGN_OR_RETURN(const auto room,
                   parts_.room.Reserve(cluster_, absl::StrCat("volume ", spec.name), asked_size_bytes,
                                       IsThick(spec.provisioning) ? asked_size_bytes : copied));
  VolumeRow row;
  row.cluster = cluster_;
  row.asked_size_bytes = asked_size_bytes;
  row.copying = !source.path.empty() && !parts_.images.can_clone();
  const std::string digits = RandomHexDigits();
  row.volume.serial = SerialFrom(digits + RandomHexDigits());
  row.volume.id = VolumeId(absl::StrCat(parts_.options.name, "-v", digits));
  row.volume.spec = spec;
  row.volume.spec.size_bytes = asked_size_bytes;
  row.volume.spec.limits.version = spec.limits == VolumeLimits() ? 0 : 1;
  row.volume.created = absl::Now();
  if (!row.copying) RETURN_IF_ERROR(FillVolume(row, source.path, own_space));
  FAIL_POINT("array.create.file_made");
  // Once more: a source that grew while its file was cloned is perhaps cut off in the clone.
  absl::Status inserted = FindSource(spec).status();
  if (inserted.ok()) inserted = parts_.catalogue.volumes().InsertVolume(row);
  // A call of the same name on another thread cannot have won: the name is locked. So this is a full disk, or
  // the source has grown or was granted meanwhile.
  if (!inserted.ok()) {
    parts_.images.DropNewImage(parts_.images.VolumePath(row.volume.id));
    return inserted;
  }
  FAIL_POINT("array.create.stored");
  if (row.copying) parts_.copies.BeginVolumeCopy(row, source.path, room.space);
  return row;
}

absl::StatusOr<TgtVolumes::Source> TgtVolumes::FindSource(const VolumeSpec& spec) {
  uint64_t least_bytes = 0;
  Source from;
  if (!spec.source_snapshot.empty()) {
    ASSIGN_OR_RETURN(const SnapshotRow row,
                     parts_.catalogue.volumes().FindSnapshot(cluster_, spec.source_snapshot));
    if (!row.snapshot.ready) {
      return absl::AbortedError(absl::StrCat("volume ", spec.name, ": its source ", row.snapshot.id.value(),
                                             " is not ready; try again"));
    }
    least_bytes = row.snapshot.size_bytes;
    from.path = parts_.images.SnapshotPath(row.snapshot.source, row.snapshot.id);
  } else if (!spec.source_volume.empty()) {
    ASSIGN_OR_RETURN(const Volume source, GetVolume(spec.source_volume));
    ASSIGN_OR_RETURN(least_bytes, ReadShownSize(parts_, source));
    from = {parts_.images.VolumePath(source.id), IsThick(source.spec.provisioning)};
  }
  if (RoundUp(spec.size_bytes) >= least_bytes) return from;
  return absl::OutOfRangeError(absl::StrCat("volume ", spec.name, ": ", spec.size_bytes,
                                            " bytes is smaller than its source, ", least_bytes));
}

absl::StatusOr<uint64_t> TgtVolumes::MeasureCopy(const std::string& from, bool own_space) {
  if (from.empty() || (parts_.images.can_clone() && !own_space)) return 0;
  return parts_.images.MeasureImage(from);
}

absl::Status TgtVolumes::FillVolume(const VolumeRow& row, const std::string& from, bool own_space) {
  const VolumeSpec& spec = row.volume.spec;
  const std::string path = parts_.images.VolumePath(row.volume.id);
  if (from.empty()) return parts_.images.CreateImage(path, spec.size_bytes, spec.provisioning);
  return parts_.images.CloneImage(from, path, spec.size_bytes, spec.provisioning, own_space);
}

absl::Status TgtVolumes::Condemn(const std::string& path) {
  RETURN_IF_ERROR(parts_.images.MarkDeleted(path));
  FAIL_POINT("array.delete.file_condemned");
  return absl::OkStatus();
}

absl::Status TgtVolumes::DeleteVolume(const VolumeId& id) {
  RETURN_IF_ERROR(parts_.check_serving());
  ASSIGN_OR_RETURN(const auto guard, LockObject(parts_, absl::StrCat("volume ", id.value())));
  const auto row = parts_.catalogue.volumes().FindVolume(cluster_, id);
  if (absl::IsNotFound(row.status())) return absl::OkStatus();
  RETURN_IF_ERROR(row.status());
  if (row->copying)
    return absl::AbortedError(absl::StrCat("volume ", id.value(), ": it is still being copied"));
  const std::string path = parts_.images.VolumePath(id);
  RETURN_IF_ERROR(parts_.catalogue.volumes().CheckNotGranted(id));
  absl::Status deleted = parts_.images.PrepareDeletion(path);
  if (deleted.ok()) deleted = parts_.catalogue.volumes().DeleteVolume(id, [&] { return Condemn(path); });
  if (!deleted.ok()) RETURN_IF_ERROR(parts_.images.UnmarkDeleted(path));
  RETURN_IF_ERROR(deleted);
  FAIL_POINT("array.delete.row_deleted");
  RETURN_IF_ERROR(parts_.images.RemoveMarked(path));
  FAIL_POINT("array.delete.file_removed");
  parts_.gates.WakeWaiters(id);
  parts_.RememberSequence();
  return absl::OkStatus();
}

absl::StatusOr<Volume> TgtVolumes::GetVolume(const VolumeId& id) {
  RETURN_IF_ERROR(parts_.check_serving());
  ASSIGN_OR_RETURN(VolumeRow row, parts_.catalogue.volumes().FindVolume(cluster_, id));
  if (row.copying)
    return absl::AbortedError(absl::StrCat("volume ", id.value(), ": it is still being copied; try again"));
  return std::move(row.volume);
}

absl::StatusOr<Page<Volume>> TgtVolumes::ListVolumes(const std::string& token, size_t limit) {
  RETURN_IF_ERROR(parts_.check_serving());
  RETURN_IF_ERROR(CheckToken(token, absl::StrCat(parts_.options.name, "-v")));
  const size_t most = limit == 0 ? kLargestPage : std::min(limit, kLargestPage);
  ASSIGN_OR_RETURN(auto rows, parts_.catalogue.volumes().ListVolumes(cluster_, token, most + 1));
  return PageOf(std::move(rows), most, &VolumeRow::volume);
}

absl::StatusOr<Volume> TgtVolumes::ExpandVolume(const VolumeId& id, uint64_t size_bytes) {
  RETURN_IF_ERROR(parts_.check_serving());
  ASSIGN_OR_RETURN(const auto guard, LockObject(parts_, absl::StrCat("volume ", id.value())));
  ASSIGN_OR_RETURN(Volume volume, GetVolume(id));
  const uint64_t size = RoundUp(size_bytes);
  if (size <= volume.spec.size_bytes) return volume;
  ASSIGN_OR_RETURN(const PoolCapacity capacity, parts_.images.MeasureCapacity());
  const Provisioning provisioning = volume.spec.provisioning;
  RETURN_IF_ERROR(CheckSize(id.value(), size, provisioning, capacity));
  // Not the difference of the sizes: a growth that was cut short has its space already, and is repeated.
  ASSIGN_OR_RETURN(const uint64_t has, parts_.images.MeasureImage(parts_.images.VolumePath(id)));
  ASSIGN_OR_RETURN(
      const auto room,
      parts_.room.Reserve(cluster_, absl::StrCat("volume ", id.value()), size - volume.spec.size_bytes,
                          IsThick(provisioning) && size > has ? size - has : 0));
  RETURN_IF_ERROR(GrowVolume(volume, size));
  parts_.RememberSequence();
  volume.spec.size_bytes = size;
  return volume;
}

absl::Status TgtVolumes::GrowVolume(const Volume& volume, uint64_t size_bytes) {
  const GrantFilter of_volume{.volume = volume.id, .node = {}};
  ASSIGN_OR_RETURN(const auto before, parts_.catalogue.grants().ListGrants(cluster_, of_volume));
  RETURN_IF_ERROR(parts_.servers.WaitReady(before, absl::Now() + kReadyTimeout));
  // Before the gate: it syncs all that is dirty of the volume, and a fence would wait for that. A file that
  // is larger than its LUNs harms nobody.
  const std::string path = parts_.images.VolumePath(volume.id);
  RETURN_IF_ERROR(parts_.images.GrowImage(path, size_bytes, volume.spec.provisioning));
  FAIL_POINT("array.expand.file_grown");
  const auto pass = parts_.gates.Enter(volume.id, absl::Now() + kGateTimeout);
  if (!pass.has_value())
    return absl::AbortedError(absl::StrCat("volume ", volume.id.value(), ": it stays busy; try again"));
  // Behind the gate no grant comes or goes, so these are all. A grant made later finds the larger file.
  ASSIGN_OR_RETURN(const auto grants, parts_.catalogue.grants().ListGrants(cluster_, of_volume));
  for (const GrantRow& grant : grants) {
    if (!grant.releasing) RETURN_IF_ERROR(parts_.servers.TargetsOf(grant).ReopenLun(grant));
  }
  FAIL_POINT("array.expand.lun_grown");
  // Last, so that a growth that is cut short is begun again when the call is repeated.
  return parts_.catalogue.volumes().SetVolumeSize(volume.id, size_bytes);
}

// One change of the catalogue: a call that is killed has made it or not. Nodes learn of new limits from their
// grants.
absl::StatusOr<Volume> TgtVolumes::ModifyVolume(const VolumeId& id, const VolumeChange& change) {
  RETURN_IF_ERROR(parts_.check_serving());
  ASSIGN_OR_RETURN(const auto guard, LockObject(parts_, absl::StrCat("volume ", id.value())));
  ASSIGN_OR_RETURN(const Volume volume, GetVolume(id));
  const VolumeSpec changed = WithChange(volume.spec, change);
  if (changed == volume.spec) return volume;
  RETURN_IF_ERROR(NeedsNoGrant(volume.spec, changed)
                      ? ModifyUngranted(id, change)
                      : parts_.catalogue.volumes().ModifyVolume(cluster_, id, change));
  FAIL_POINT("array.modify.stored");
  parts_.RememberSequence();
  return GetVolume(id);
}

// For durability `sync`, writes of the time before, which were acknowledged from a cache, have to be on the
// disk: from here on the volume promises that they are, and its next initiator may send no flush.
absl::Status TgtVolumes::ModifyUngranted(const VolumeId& id, const VolumeChange& change) {
  const std::string path = parts_.images.VolumePath(id);
  const bool sync = change.durability == Durability::kSync;
  if (sync) RETURN_IF_ERROR(parts_.images.SyncImage(path));  // the most of it, while nobody waits at the gate
  // Behind the gate no node takes the volume, writes and releases it between the sync and the change.
  const auto pass = parts_.gates.Enter(id, absl::Now() + kGateTimeout);
  if (!pass.has_value())
    return absl::AbortedError(absl::StrCat("volume ", id.value(), ": it stays busy; try again"));
  if (sync) RETURN_IF_ERROR(parts_.images.SyncImage(path));
  FAIL_POINT("array.modify.synced");
  return parts_.catalogue.volumes().ModifyVolume(cluster_, id, change);
}

absl::StatusOr<Snapshot> TgtVolumes::CreateSnapshot(const std::string& name, const VolumeId& source) {
  RETURN_IF_ERROR(parts_.check_serving());
  if (name.empty()) return absl::InvalidArgumentError("create snapshot: it has no name");
  ASSIGN_OR_RETURN(const auto guard,
                   LockObject(parts_, absl::StrCat("snapshot ", cluster_.value(), "/", name)));
  ASSIGN_OR_RETURN(const auto existing, parts_.catalogue.volumes().FindSnapshotNamed(cluster_, name));
  if (existing.has_value() && existing->snapshot.source != source) {
    return absl::AlreadyExistsError(absl::StrCat("snapshot ", name,
                                                 ": the name is taken by a snapshot of volume ",
                                                 existing->snapshot.source.value(), "; choose another"));
  }
  SnapshotId id;
  if (existing.has_value()) {
    id = existing->snapshot.id;
  } else {
    ASSIGN_OR_RETURN(const Snapshot made, MakeSnapshot(name, source));
    id = made.id;
  }
  parts_.RememberSequence();
  // A snapshot that is still copied is answered as it is, not ready: CSI has a word for that. A volume has
  // none, so CreateVolume says ABORTED and is repeated.
  const absl::Status copied = parts_.copies.WaitForCopy(id.value(), absl::Now() + parts_.options.copy_wait);
  if (!copied.ok() && !absl::IsAborted(copied)) return copied;
  ASSIGN_OR_RETURN(Snapshot snapshot, GetSnapshot(id));
  if (snapshot.ready) RETURN_IF_ERROR(parts_.images.KeepImage(parts_.images.SnapshotPath(source, id)));
  return snapshot;
}

// The source stays locked: a growth in between would have its file system grow, too, and the snapshot cut it
// off at the old size.
absl::StatusOr<Snapshot> TgtVolumes::MakeSnapshot(const std::string& name, const VolumeId& source) {
  ASSIGN_OR_RETURN(const auto guard, LockObject(parts_, absl::StrCat("volume ", source.value())));
  ASSIGN_OR_RETURN(const VolumeRow from, parts_.catalogue.volumes().FindVolume(cluster_, source));
  if (from.copying)
    return absl::AbortedError(absl::StrCat("snapshot ", name, ": its source is still being copied"));
  const Volume& volume = from.volume;
  ASSIGN_OR_RETURN(const uint64_t size_bytes, ReadShownSize(parts_, volume));
  // A write to what is shared takes new space, and a thick volume has been promised that it needs none.
  const bool own_space = IsThick(volume.spec.provisioning);
  ASSIGN_OR_RETURN(const uint64_t copied, MeasureCopy(parts_.images.VolumePath(volume.id), own_space));
  ASSIGN_OR_RETURN(const auto room,
                   parts_.room.Reserve(cluster_, absl::StrCat("snapshot ", name), size_bytes, copied));
  SnapshotRow row;
  row.cluster = cluster_;
  row.snapshot = {.id = SnapshotId(absl::StrCat(parts_.options.name, "-s", RandomHexDigits())),
                  .name = name,
                  .source = volume.id,
                  .size_bytes = size_bytes,
                  .created = absl::Now(),
                  .ready = parts_.images.can_clone()};
  const std::string path = parts_.images.SnapshotPath(row.snapshot.source, row.snapshot.id);
  if (row.snapshot.ready) {
    RETURN_IF_ERROR(parts_.images.CloneImage(parts_.images.VolumePath(volume.id), path, size_bytes,
                                             Provisioning::kThin, own_space));
  }
  FAIL_POINT("array.snapshot.file_made");
  const absl::Status inserted = parts_.catalogue.volumes().InsertSnapshot(row);
  if (!inserted.ok()) {
    parts_.images.DropNewImage(path);
    return inserted;
  }
  FAIL_POINT("array.snapshot.stored");
  if (!row.snapshot.ready) parts_.copies.BeginSnapshotCopy(row, room.space);
  return row.snapshot;
}

absl::Status TgtVolumes::DeleteSnapshot(const SnapshotId& id) {
  RETURN_IF_ERROR(parts_.check_serving());
  ASSIGN_OR_RETURN(const auto guard, LockObject(parts_, absl::StrCat("snapshot ", id.value())));
  const auto row = parts_.catalogue.volumes().FindSnapshot(cluster_, id);
  if (absl::IsNotFound(row.status())) return absl::OkStatus();
  RETURN_IF_ERROR(row.status());
  if (!row->snapshot.ready)
    return absl::AbortedError(absl::StrCat("snapshot ", id.value(), ": it is being copied"));
  const std::string path = parts_.images.SnapshotPath(row->snapshot.source, id);
  absl::Status deleted = parts_.images.PrepareDeletion(path);
  if (deleted.ok()) deleted = parts_.catalogue.volumes().DeleteSnapshot(id, [&] { return Condemn(path); });
  if (!deleted.ok()) RETURN_IF_ERROR(parts_.images.UnmarkDeleted(path));
  RETURN_IF_ERROR(deleted);
  FAIL_POINT("array.delete_snapshot.row_deleted");
  RETURN_IF_ERROR(parts_.images.RemoveMarked(path));
  parts_.RememberSequence();
  return absl::OkStatus();
}

absl::StatusOr<Snapshot> TgtVolumes::GetSnapshot(const SnapshotId& id) {
  RETURN_IF_ERROR(parts_.check_serving());
  ASSIGN_OR_RETURN(SnapshotRow row, parts_.catalogue.volumes().FindSnapshot(cluster_, id));
  return std::move(row.snapshot);
}

absl::StatusOr<Page<Snapshot>> TgtVolumes::ListSnapshots(const VolumeId& source, const std::string& token,
                                                         size_t limit) {
  RETURN_IF_ERROR(parts_.check_serving());
  RETURN_IF_ERROR(CheckToken(token, absl::StrCat(parts_.options.name, "-s")));
  const size_t most = limit == 0 ? kLargestPage : std::min(limit, kLargestPage);
  ASSIGN_OR_RETURN(auto rows, parts_.catalogue.volumes().ListSnapshots(cluster_, source, token, most + 1));
  return PageOf(std::move(rows), most, &SnapshotRow::snapshot);
}

absl::StatusOr<PoolCapacity> TgtVolumes::GetCapacity() {
  RETURN_IF_ERROR(parts_.check_serving());
  return parts_.room.MeasureCapacity(cluster_);
}

}  // namespace lunkeeper
