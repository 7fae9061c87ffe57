// The array's volumes and snapshots. A file comes before its row and goes after it, so that what a crash
// leaves is a file that the catalogue does not know, which the next start removes; only a long copy has its
// row first.

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "devices/array/tgt/tgt_host.h"

namespace lunkeeper {
namespace {

// What is left free when a thick volume or a copy is made, for the catalogue and the thin volumes that run.
constexpr uint64_t kMargin = 16 * kMiB;
constexpr size_t kLargestPage = 10000;

std::string Hex(uint64_t number) { return absl::StrCat(absl::Hex(number, absl::kZeroPad16)); }

// The form of a UUID, because its 36 characters are just what tgtd has room for: it fills shorter ones up
// with blanks.
std::string SerialFrom(uint64_t id, uint64_t rest) {
  const std::string digits = Hex(id) + Hex(rest);
  return absl::StrCat(digits.substr(0, 8), "-", digits.substr(8, 4), "-", digits.substr(12, 4), "-",
                      digits.substr(16, 4), "-", digits.substr(20, 12));
}

absl::Status CheckSize(const std::string& name, uint64_t size_bytes, Provisioning provisioning,
                       const PoolCapacity& capacity) {
  const bool thick = provisioning == Provisioning::kThick;
  if (size_bytes > capacity.largest_volume_bytes || (thick && size_bytes > capacity.total_bytes)) {
    return absl::OutOfRangeError(absl::StrCat("volume ", name, ": ", size_bytes,
                                              " bytes is more than the pool can give, ",
                                              std::min(capacity.largest_volume_bytes, capacity.total_bytes)));
  }
  return absl::OkStatus();
}

absl::Status CheckRoom(const std::string& name, uint64_t bytes, const PoolCapacity& capacity) {
  if (bytes + kMargin <= capacity.available_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("volume ", name, ": the pool has ",
                                                   capacity.available_bytes, " bytes left and ", bytes,
                                                   " are needed; grow the pool"));
}

uint64_t RoundUp(uint64_t size_bytes) {
  if (size_bytes > UINT64_MAX - kMiB) return UINT64_MAX;
  return std::max(kMiB, (size_bytes + kMiB - 1) / kMiB * kMiB);
}

absl::Status CheckToken(const std::string& token, const std::string& prefix) {
  if (token.empty() || absl::StartsWith(token, prefix)) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("list: '", token, "' is no token of this array; begin again without one"));
}

template <class Row, class Item>
Page<Item> PageOf(std::vector<Row> rows, size_t limit, Item Row::*item) {
  Page<Item> page;
  const bool more = rows.size() > limit;
  if (more) rows.resize(limit);
  for (Row& row : rows) page.items.push_back(std::move(row.*item));
  if (more) page.next_token = page.items.back().id.value();
  return page;
}

absl::StatusOr<Volume> AlreadyThere(const VolumeRow& row, const VolumeSpec& spec, uint64_t size_bytes) {
  VolumeSpec was = row.volume.spec;
  was.size_bytes = spec.size_bytes;
  if (was == spec && (row.asked_size_bytes == size_bytes || row.volume.spec.size_bytes == size_bytes))
    return row.volume;
  return absl::AlreadyExistsError(absl::StrCat("volume ", spec.name, ": the name is taken by ",
                                               row.volume.id.value(), ", of ", row.volume.spec.size_bytes,
                                               " bytes or with other parameters; choose another name"));
}

}  // namespace

absl::StatusOr<Volume> TgtArray::CreateVolume(const VolumeSpec& spec) {
  RETURN_IF_ERROR(host_.Serving());
  if (spec.name.empty()) return absl::InvalidArgumentError("create volume: it has no name");
  const TgtHost::Claim claim(&host_, absl::StrCat("volume ", cluster_.value(), "/", spec.name));
  RETURN_IF_ERROR(claim.status());
  const uint64_t size_bytes = RoundUp(spec.size_bytes);
  ASSIGN_OR_RETURN(const auto existing, host_.catalogue->FindVolumeNamed(cluster_, spec.name));
  VolumeId id;
  if (existing.has_value()) {
    RETURN_IF_ERROR(AlreadyThere(*existing, spec, size_bytes).status());
    id = existing->volume.id;
  } else {
    ASSIGN_OR_RETURN(const VolumeRow made, MakeVolume(spec, size_bytes));
    id = made.volume.id;
  }
  host_.Remember();
  RETURN_IF_ERROR(host_.copies->Wait(id.value(), absl::Now() + host_.options.copy_wait));
  return GetVolume(id);
}

absl::StatusOr<VolumeRow> TgtArray::MakeVolume(const VolumeSpec& spec, uint64_t asked_size_bytes) {
  ASSIGN_OR_RETURN(const PoolCapacity capacity, host_.pool->Capacity());
  RETURN_IF_ERROR(CheckSize(spec.name, asked_size_bytes, spec.provisioning, capacity));
  ASSIGN_OR_RETURN(const std::string from, SourceOf(spec));
  const bool thick = spec.provisioning == Provisioning::kThick;
  RETURN_IF_ERROR(CheckRoom(spec.name, thick ? asked_size_bytes : 0, capacity));
  VolumeRow row;
  row.cluster = cluster_;
  row.asked_size_bytes = asked_size_bytes;
  row.copying = !from.empty() && !host_.pool->reflinks();
  const uint64_t number = RandomBits();
  row.volume.serial = SerialFrom(number, RandomBits());
  row.volume.id = VolumeId(absl::StrCat(host_.options.name, "-v", Hex(number)));
  row.volume.spec = spec;
  row.volume.spec.size_bytes = asked_size_bytes;
  row.volume.created = absl::Now();
  if (!row.copying) RETURN_IF_ERROR(FillVolume(row, from));
  FAIL_POINT("array.create.file_made");
  const absl::Status inserted = host_.catalogue->InsertVolume(row);
  if (!inserted.ok()) {
    host_.pool->Remove(host_.pool->VolumePath(row.volume.id)).IgnoreError();
    return inserted;
  }
  FAIL_POINT("array.create.stored");
  if (row.copying) host_.BeginCopy(row, from);
  return row;
}

// The file of the source, or nothing.
absl::StatusOr<std::string> TgtArray::SourceOf(const VolumeSpec& spec) {
  uint64_t least_bytes = 0;
  std::string from;
  if (!spec.source_snapshot.empty()) {
    ASSIGN_OR_RETURN(const SnapshotRow row, host_.catalogue->FindSnapshot(cluster_, spec.source_snapshot));
    if (!row.snapshot.ready) {
      return absl::AbortedError(absl::StrCat("volume ", spec.name, ": its source ", row.snapshot.id.value(),
                                             " is not ready; try again"));
    }
    least_bytes = row.snapshot.size_bytes;
    from = host_.pool->SnapshotPath(row.snapshot.id);
  } else if (!spec.source_volume.empty()) {
    ASSIGN_OR_RETURN(const Volume source, GetVolume(spec.source_volume));
    least_bytes = source.spec.size_bytes;
    from = host_.pool->VolumePath(source.id);
  }
  if (RoundUp(spec.size_bytes) >= least_bytes) return from;
  return absl::OutOfRangeError(absl::StrCat("volume ", spec.name, ": ", spec.size_bytes,
                                            " bytes is smaller than its source, ", least_bytes));
}

absl::Status TgtArray::FillVolume(const VolumeRow& row, const std::string& from) {
  const VolumeSpec& spec = row.volume.spec;
  const std::string path = host_.pool->VolumePath(row.volume.id);
  if (from.empty()) return host_.pool->Create(path, spec.size_bytes, spec.provisioning);
  return host_.pool->Clone(from, path, spec.size_bytes, spec.provisioning);
}

absl::Status TgtArray::DeleteVolume(const VolumeId& id) {
  RETURN_IF_ERROR(host_.Serving());
  const TgtHost::Claim claim(&host_, absl::StrCat("volume ", id.value()));
  RETURN_IF_ERROR(claim.status());
  const auto row = host_.catalogue->FindVolume(cluster_, id);
  if (absl::IsNotFound(row.status())) return absl::OkStatus();
  RETURN_IF_ERROR(row.status());
  if (row->copying)
    return absl::AbortedError(absl::StrCat("volume ", id.value(), ": it is still being copied"));
  RETURN_IF_ERROR(host_.catalogue->DeleteVolume(id));
  FAIL_POINT("array.delete.row_deleted");
  RETURN_IF_ERROR(host_.pool->Remove(host_.pool->VolumePath(id)));
  FAIL_POINT("array.delete.file_removed");
  host_.gates.WakeWaiters(id);
  host_.Remember();
  return absl::OkStatus();
}

absl::StatusOr<Volume> TgtArray::GetVolume(const VolumeId& id) {
  RETURN_IF_ERROR(host_.Serving());
  ASSIGN_OR_RETURN(VolumeRow row, host_.catalogue->FindVolume(cluster_, id));
  if (row.copying)
    return absl::AbortedError(absl::StrCat("volume ", id.value(), ": it is still being copied; try again"));
  return std::move(row.volume);
}

absl::StatusOr<Page<Volume>> TgtArray::ListVolumes(const std::string& token, size_t limit) {
  RETURN_IF_ERROR(host_.Serving());
  RETURN_IF_ERROR(CheckToken(token, absl::StrCat(host_.options.name, "-v")));
  const size_t most = limit == 0 ? kLargestPage : std::min(limit, kLargestPage);
  ASSIGN_OR_RETURN(auto rows, host_.catalogue->ListVolumes(cluster_, token, most + 1));
  return PageOf(std::move(rows), most, &VolumeRow::volume);
}

absl::StatusOr<Volume> TgtArray::ExpandVolume(const VolumeId& id, uint64_t size_bytes) {
  RETURN_IF_ERROR(host_.Serving());
  const TgtHost::Claim claim(&host_, absl::StrCat("volume ", id.value()));
  RETURN_IF_ERROR(claim.status());
  ASSIGN_OR_RETURN(Volume volume, GetVolume(id));
  const uint64_t size = RoundUp(size_bytes);
  if (size <= volume.spec.size_bytes) return volume;
  ASSIGN_OR_RETURN(const PoolCapacity capacity, host_.pool->Capacity());
  const Provisioning provisioning = volume.spec.provisioning;
  RETURN_IF_ERROR(CheckSize(id.value(), size, provisioning, capacity));
  const bool thick = provisioning == Provisioning::kThick;
  RETURN_IF_ERROR(CheckRoom(id.value(), thick ? size - volume.spec.size_bytes : 0, capacity));
  const absl::Status ready = host_.daemon->WaitReady(absl::Now() + kReadyTimeout);
  RETURN_IF_ERROR(ready);
  const auto pass = host_.gates.Enter(id, absl::Now() + kGateTimeout);
  if (!pass.has_value())
    return absl::AbortedError(absl::StrCat("volume ", id.value(), ": it stays busy; try again"));
  const std::string path = host_.pool->VolumePath(id);
  RETURN_IF_ERROR(host_.pool->Grow(path, size, provisioning));
  FAIL_POINT("array.expand.file_grown");
  ASSIGN_OR_RETURN(const auto grants, host_.catalogue->ListGrants(cluster_, {.volume = id, .node = {}}));
  for (const GrantRow& grant : grants) {
    if (!grant.releasing) RETURN_IF_ERROR(host_.GrowLun(grant, path));
  }
  FAIL_POINT("array.expand.lun_grown");
  RETURN_IF_ERROR(host_.catalogue->SetVolumeSize(id, size));
  host_.Remember();
  volume.spec.size_bytes = size;
  return volume;
}

absl::StatusOr<Snapshot> TgtArray::CreateSnapshot(const std::string& name, const VolumeId& source) {
  RETURN_IF_ERROR(host_.Serving());
  if (name.empty()) return absl::InvalidArgumentError("create snapshot: it has no name");
  const TgtHost::Claim claim(&host_, absl::StrCat("snapshot ", cluster_.value(), "/", name));
  RETURN_IF_ERROR(claim.status());
  ASSIGN_OR_RETURN(const auto existing, host_.catalogue->FindSnapshotNamed(cluster_, name));
  if (existing.has_value() && existing->snapshot.source != source) {
    return absl::AlreadyExistsError(absl::StrCat("snapshot ", name,
                                                 ": the name is taken by a snapshot of volume ",
                                                 existing->snapshot.source.value(), "; choose another"));
  }
  SnapshotId id;
  if (existing.has_value()) {
    id = existing->snapshot.id;
  } else {
    ASSIGN_OR_RETURN(const VolumeRow row, host_.catalogue->FindVolume(cluster_, source));
    ASSIGN_OR_RETURN(const Snapshot made, MakeSnapshot(name, row));
    id = made.id;
  }
  host_.Remember();
  const absl::Status copied = host_.copies->Wait(id.value(), absl::Now() + host_.options.copy_wait);
  if (!copied.ok() && !absl::IsAborted(copied)) return copied;
  return GetSnapshot(id);
}

absl::StatusOr<Snapshot> TgtArray::MakeSnapshot(const std::string& name, const VolumeRow& source) {
  if (source.copying)
    return absl::AbortedError(absl::StrCat("snapshot ", name, ": its source is still being copied"));
  const Volume& volume = source.volume;
  ASSIGN_OR_RETURN(const PoolCapacity capacity, host_.pool->Capacity());
  RETURN_IF_ERROR(CheckRoom(volume.id.value(), 0, capacity));
  SnapshotRow row;
  row.cluster = cluster_;
  row.snapshot = {.id = SnapshotId(absl::StrCat(host_.options.name, "-s", RandomHexDigits())),
                  .name = name,
                  .source = volume.id,
                  .size_bytes = volume.spec.size_bytes,
                  .created = absl::Now(),
                  .ready = host_.pool->reflinks()};
  const std::string path = host_.pool->SnapshotPath(row.snapshot.id);
  if (row.snapshot.ready) {
    RETURN_IF_ERROR(host_.pool->Clone(host_.pool->VolumePath(volume.id), path, volume.spec.size_bytes,
                                      Provisioning::kThin));
  }
  FAIL_POINT("array.snapshot.file_made");
  const absl::Status inserted = host_.catalogue->InsertSnapshot(row);
  if (!inserted.ok()) {
    host_.pool->Remove(path).IgnoreError();
    return inserted;
  }
  FAIL_POINT("array.snapshot.stored");
  if (!row.snapshot.ready) host_.BeginCopy(row);
  return row.snapshot;
}

absl::Status TgtArray::DeleteSnapshot(const SnapshotId& id) {
  RETURN_IF_ERROR(host_.Serving());
  const TgtHost::Claim claim(&host_, absl::StrCat("snapshot ", id.value()));
  RETURN_IF_ERROR(claim.status());
  const auto row = host_.catalogue->FindSnapshot(cluster_, id);
  if (absl::IsNotFound(row.status())) return absl::OkStatus();
  RETURN_IF_ERROR(row.status());
  if (!row->snapshot.ready)
    return absl::AbortedError(absl::StrCat("snapshot ", id.value(), ": it is being copied"));
  RETURN_IF_ERROR(host_.catalogue->DeleteSnapshot(id));
  FAIL_POINT("array.delete_snapshot.row_deleted");
  RETURN_IF_ERROR(host_.pool->Remove(host_.pool->SnapshotPath(id)));
  host_.Remember();
  return absl::OkStatus();
}

absl::StatusOr<Snapshot> TgtArray::GetSnapshot(const SnapshotId& id) {
  RETURN_IF_ERROR(host_.Serving());
  ASSIGN_OR_RETURN(SnapshotRow row, host_.catalogue->FindSnapshot(cluster_, id));
  return std::move(row.snapshot);
}

absl::StatusOr<Page<Snapshot>> TgtArray::ListSnapshots(const VolumeId& source, const std::string& token,
                                                       size_t limit) {
  RETURN_IF_ERROR(host_.Serving());
  RETURN_IF_ERROR(CheckToken(token, absl::StrCat(host_.options.name, "-s")));
  const size_t most = limit == 0 ? kLargestPage : std::min(limit, kLargestPage);
  ASSIGN_OR_RETURN(auto rows, host_.catalogue->ListSnapshots(cluster_, source, token, most + 1));
  return PageOf(std::move(rows), most, &SnapshotRow::snapshot);
}

absl::StatusOr<PoolCapacity> TgtArray::GetCapacity() {
  RETURN_IF_ERROR(host_.Serving());
  return host_.pool->Capacity();
}

}  // namespace lunkeeper
