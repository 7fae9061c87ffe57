// The reasons are part of the interface (docs/orchestrators.md lists them): programs compare them. Nothing
// here is INACCESSIBLE: to an orchestrator that would mean "from all nodes", and an agent that does not
// answer says nothing of the I/O that goes on past it.
#include "controller/volume_health.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/array/full_pool.h"

namespace lunkeeper {
namespace {

void AddDegraded(const char* reason, std::string message, csi::v1::VolumeHealth* health) {
  auto* entry = health->add_health_statuses();
  entry->set_status(csi::v1::DEGRADED);
  entry->set_reason(reason);
  entry->set_message(std::move(message));
}

}  // namespace

absl::StatusOr<csi::v1::VolumeHealth> HealthChecker::CheckVolume(const VolumeId& id) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Array> array, FindArrayOf(arrays_, id.value()));
  const absl::StatusOr<Volume> volume = array->volumes().GetVolume(id);
  if (volume.ok()) return CheckListed(*volume);
  if (!absl::IsUnavailable(volume.status()) && !absl::IsDeadlineExceeded(volume.status()))
    return volume.status();
  csi::v1::VolumeHealth health;
  health.set_volume_id(id.value());
  AddDegraded(
      "ArrayNotAnswering",
      absl::StrCat("its array gives no grants, snapshots or growth; nodes that have the volume may go "
                   "on: ",
                   volume.status().message()),
      &health);
  return health;
}

// A page of the array's list may give no entry: then the next one is read.
absl::StatusOr<Page<csi::v1::VolumeHealth>> HealthChecker::ListProblems(VolumeStore& volumes,
                                                                        std::string token, size_t limit) {
  Page<csi::v1::VolumeHealth> problems;
  do {
    ASSIGN_OR_RETURN(const Page<Volume> page,
                     volumes.ListVolumes(token, limit == 0 ? 0 : limit - problems.items.size()));
    for (const Volume& volume : page.items) {
      csi::v1::VolumeHealth health = CheckListed(volume);
      if (health.health_statuses_size() != 0) problems.items.push_back(std::move(health));
    }
    token = page.next_token;
  } while (!token.empty() && (limit == 0 || problems.items.size() < limit));
  problems.next_token = std::move(token);
  return problems;
}

csi::v1::VolumeHealth HealthChecker::CheckListed(const Volume& volume) {
  csi::v1::VolumeHealth health;
  health.set_volume_id(volume.id.value());
  if (volume.spec.provisioning == Provisioning::kThick) return health;  // it has all its space
  const std::string array = ArrayNameIn(volume.id.value());
  const std::optional<uint64_t> free = FreeBytes(array);
  if (free.value_or(kFullPoolBytes) < kFullPoolBytes)
    AddDegraded(
        "PoolFull",
        absl::StrCat("the pool of array ", array, " has ", *free,
                     " bytes left, and a write that needs more fails: delete volumes or snapshots, or "
                     "grow the pool"),
        &health);
  return health;
}

// Nothing when the array does not say: then nothing is claimed of its pool.
std::optional<uint64_t> HealthChecker::FreeBytes(const std::string& array_name) {
  const auto known = free_bytes_.find(array_name);
  if (known != free_bytes_.end()) return known->second;
  std::optional<uint64_t>& free = free_bytes_[array_name];
  const std::shared_ptr<Array> array = FindArray(arrays_, array_name);
  if (array == nullptr) return free;
  if (const auto capacity = array->volumes().GetCapacity(); capacity.ok()) free = capacity->available_bytes;
  return free;
}

}  // namespace lunkeeper
