// A check and the change that it was for are minutes apart where a copy or a growth takes that long, so a
// check alone would let a hundred calls at once have the same room. The sum is taken from the catalogue each
// time and not kept here: what is deleted, restored or cut short by a crash is right by itself.
#include "devices/array/tgt/pool_room.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/array/full_pool.h"

namespace lunkeeper {
namespace {

uint64_t SumOf(const std::map<ClusterId, uint64_t>& promised) {
  uint64_t sum = 0;
  for (const auto& [cluster, bytes] : promised) sum += bytes;
  return sum;
}

}  // namespace

absl::StatusOr<PoolRoom::Reservation> PoolRoom::Reserve(const ClusterId& cluster, const std::string& what,
                                                        uint64_t promised, uint64_t taken) {
  const absl::MutexLock lock(&mu_);
  // Inside the lock: what another call has reserved is reserved still, or is taken and measured.
  ASSIGN_OR_RETURN(const PoolCapacity capacity, images_.MeasureCapacity());
  // What takes nothing now needs no room beside the copies under way.
  RETURN_IF_ERROR(CheckFree(what, taken == 0 ? 0 : taken + reserved_space_, capacity));
  RETURN_IF_ERROR(CheckPromise(cluster, what, promised, capacity));
  reserved_[cluster] += promised;
  reserved_space_ += taken;
  const auto end_promise = [this, cluster, promised](void*) {
    const absl::MutexLock release(&mu_);
    reserved_[cluster] -= promised;
  };
  const auto end_space = [this, taken](void*) {
    const absl::MutexLock release(&mu_);
    reserved_space_ -= taken;
  };
  return Reservation{.promise = {nullptr, end_promise}, .space = {nullptr, end_space}};
}

absl::Status PoolRoom::CheckPromise(const ClusterId& cluster, const std::string& what, uint64_t promised,
                                    const PoolCapacity& capacity) const {
  const uint64_t quota = limits_.quotas.Of(cluster);
  if (limits_.overcommit == 0 && quota == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto before, SumPromised());
  if (const uint64_t has = before[cluster]; quota != 0 && (promised > quota || has > quota - promised))
    return absl::ResourceExhaustedError(absl::StrCat(
        what, ": cluster ", cluster.value(), " may be promised ", quota, " bytes; ", has, " are, and ",
        promised, " are asked for; delete volumes or snapshots, or raise its --quota"));
  const double most = limits_.overcommit * static_cast<double>(capacity.total_bytes);
  const uint64_t all = SumOf(before);
  if (limits_.overcommit == 0 || static_cast<double>(all) + static_cast<double>(promised) <= most)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(what, ": the pool has ", capacity.total_bytes, " bytes, of which ", limits_.overcommit,
                   " times as many may be promised; ", all, " are, and ", promised,
                   " are asked for; delete volumes or snapshots, grow the pool or raise --overcommit"));
}

absl::Status PoolRoom::CheckFree(const std::string& what, uint64_t taken) const {
  ASSIGN_OR_RETURN(const PoolCapacity capacity, images_.MeasureCapacity());
  return CheckFree(what, taken, capacity);
}

absl::Status PoolRoom::CheckFree(const std::string& what, uint64_t taken,
                                 const PoolCapacity& capacity) const {
  const uint64_t kept = KeptFree(capacity);
  if (taken + kept <= capacity.available_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(what, ": the pool has ", capacity.available_bytes, " bytes left, ", taken,
                   " are needed, with what is being copied, and ", kept,
                   " are kept free; delete volumes or snapshots, or grow the pool"));
}

absl::StatusOr<std::map<ClusterId, uint64_t>> PoolRoom::SumPromised() const {
  ASSIGN_OR_RETURN(const auto there, catalogue_.volumes().SumUp());
  auto promised = there.sizes;
  for (const auto& [cluster, bytes] : reserved_) promised[cluster] += bytes;
  return promised;
}

uint64_t PoolRoom::KeptFree(const PoolCapacity& capacity) const {
  return std::max<uint64_t>(kFullPoolBytes,
                            capacity.total_bytes / 100 * static_cast<uint64_t>(limits_.keep_free_percent));
}

absl::StatusOr<PoolCapacity> PoolRoom::MeasureCapacity(const ClusterId& cluster) const {
  ASSIGN_OR_RETURN(PoolCapacity capacity, images_.MeasureCapacity());
  const absl::MutexLock lock(&mu_);
  capacity.creatable_bytes =
      capacity.available_bytes - std::min(KeptFree(capacity) + reserved_space_, capacity.available_bytes);
  const uint64_t quota = limits_.quotas.Of(cluster);
  if (limits_.overcommit == 0 && quota == 0) return capacity;
  ASSIGN_OR_RETURN(auto promised, SumPromised());
  if (quota != 0)
    capacity.creatable_bytes = std::min(capacity.creatable_bytes, quota - std::min(quota, promised[cluster]));
  if (limits_.overcommit == 0) return capacity;
  const double most = limits_.overcommit * static_cast<double>(capacity.total_bytes);
  const double left = std::max(0.0, most - static_cast<double>(SumOf(promised)));
  if (left < static_cast<double>(capacity.creatable_bytes))
    capacity.creatable_bytes = static_cast<uint64_t>(left);
  return capacity;
}

absl::StatusOr<PoolUse> PoolRoom::MeasureUse() const {
  ASSIGN_OR_RETURN(const PoolCapacity capacity, images_.MeasureCapacity());
  ASSIGN_OR_RETURN(const auto there, catalogue_.volumes().SumUp());
  return PoolUse{.total_bytes = capacity.total_bytes,
                 .used_bytes = capacity.total_bytes - capacity.available_bytes,
                 .promised_bytes = there.sizes,
                 .volumes = there.volumes,
                 .snapshots = there.snapshots};
}

}  // namespace lunkeeper
