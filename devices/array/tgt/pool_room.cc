#include "devices/array/tgt/pool_room.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/units.h"

namespace lunkeeper {
namespace {

// Left free in any case, for the catalogue and for thin volumes that are in use.
constexpr uint64_t kMargin = 16 * kMiB;

}  // namespace

absl::Status PoolRoom::CheckRoom(const std::string& what, uint64_t promised, uint64_t taken) const {
  ASSIGN_OR_RETURN(const PoolCapacity capacity, images_.MeasureCapacity());
  RETURN_IF_ERROR(CheckFree(what, taken, capacity));
  if (limits_.overcommit == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const uint64_t before, catalogue_.volumes().SumSizes());
  const double most = limits_.overcommit * static_cast<double>(capacity.total_bytes);
  if (static_cast<double>(before) + static_cast<double>(promised) <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(what, ": the pool has ", capacity.total_bytes, " bytes, of which ", limits_.overcommit,
                   " times as many may be promised; ", before, " are, and ", promised,
                   " are asked for; delete volumes or snapshots, grow the pool or raise --overcommit"));
}

absl::Status PoolRoom::CheckFree(const std::string& what, uint64_t taken,
                                 const PoolCapacity& capacity) const {
  const uint64_t kept = KeptFree(capacity);
  if (taken + kept <= capacity.available_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      what, ": the pool has ", capacity.available_bytes, " bytes left, ", taken, " are needed and ", kept,
      " are kept free; delete volumes or snapshots, or grow the pool"));
}

uint64_t PoolRoom::KeptFree(const PoolCapacity& capacity) const {
  return std::max<uint64_t>(kMargin,
                            capacity.total_bytes / 100 * static_cast<uint64_t>(limits_.keep_free_percent));
}

absl::StatusOr<PoolCapacity> PoolRoom::MeasureCapacity() const {
  ASSIGN_OR_RETURN(PoolCapacity capacity, images_.MeasureCapacity());
  capacity.creatable_bytes =
      capacity.available_bytes - std::min(KeptFree(capacity), capacity.available_bytes);
  if (limits_.overcommit == 0) return capacity;
  ASSIGN_OR_RETURN(const uint64_t promised, catalogue_.volumes().SumSizes());
  const double most = limits_.overcommit * static_cast<double>(capacity.total_bytes);
  const double left = std::max(0.0, most - static_cast<double>(promised));
  if (left < static_cast<double>(capacity.creatable_bytes))
    capacity.creatable_bytes = static_cast<uint64_t>(left);
  return capacity;
}

absl::StatusOr<PoolUse> PoolRoom::MeasureUse() const {
  ASSIGN_OR_RETURN(const PoolCapacity capacity, images_.MeasureCapacity());
  ASSIGN_OR_RETURN(const uint64_t promised, catalogue_.volumes().SumSizes());
  return PoolUse{.total_bytes = capacity.total_bytes,
                 .used_bytes = capacity.total_bytes - capacity.available_bytes,
                 .promised_bytes = promised};
}

}  // namespace lunkeeper
