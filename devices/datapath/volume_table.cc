// Volumes are few (kMaxVolumes) and change seldom, so slots and loop numbers are looked for by walking all of
// them; only the id has an order of its own. Pointers to volumes stay good until Erase: each is allocated on
// its own, because a call works on its volume while others come and go.

#include "devices/datapath/volume_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "devices/datapath/limits_message.h"

namespace lunkeeper {

// Slots are taken in turn rather than the lowest free one: a slot that was just freed rests for a while,
// which makes a late answer about its last volume easier to see in a core dump.
absl::StatusOr<SupervisedVolume*> VolumeTable::AddVolume(const datapath::Attach& options) {
  if (volumes_.size() >= kMaxVolumes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the data path has ", kMaxVolumes, " volumes, and no room for more"));
  }
  while (IsSlotTaken(next_slot_)) next_slot_ = (next_slot_ + 1) % kMaxVolumes;
  auto volume = std::make_unique<SupervisedVolume>();
  volume->id = VolumeId(options.volume());
  volume->options = options;
  volume->slot = next_slot_;
  // All zero is a LUN that never logged in: what the last volume of this slot left would be taken for the
  // history of this one (boot id, unflushed writes).
  const uint32_t before = SlotOf(*volume).attachment;
  std::memset(static_cast<void*>(&SlotOf(*volume)), 0, sizeof(VolumeSlot));
  SlotOf(*volume).attachment = before + 1;
  SlotOf(*volume).limits.SetLimits(FromMessage(options.limits()));
  const auto [place, inserted] = volumes_.emplace(volume->id, std::move(volume));
  LK_CHECK(inserted, "two devices would serve one volume");
  return place->second.get();
}

SupervisedVolume* VolumeTable::Find(const VolumeId& id) const {
  const auto found = volumes_.find(id);
  return found == volumes_.end() ? nullptr : found->second.get();
}

bool VolumeTable::IsInCall(const VolumeId& id) const {
  const SupervisedVolume* volume = Find(id);
  return volume != nullptr && volume->in_call;
}

SupervisedVolume* VolumeTable::BeginCall(const VolumeId& id) {
  SupervisedVolume* volume = Find(id);
  if (volume == nullptr) return nullptr;
  LK_CHECK(!volume->in_call, "two calls would work on one volume");
  volume->in_call = true;
  return volume;
}

void VolumeTable::SetLimits(const VolumeId& id, const VolumeLimits& limits) {
  const SupervisedVolume* volume = Find(id);
  if (volume != nullptr && SlotOf(*volume).limits.version < limits.version)
    SlotOf(*volume).limits.SetLimits(limits);
}

bool VolumeTable::UsesLoop(int number) const {
  return std::any_of(volumes_.begin(), volumes_.end(),
                     [number](const auto& entry) { return entry.second->loop.number == number; });
}

bool VolumeTable::IsAnyInCall() const {
  return std::any_of(volumes_.begin(), volumes_.end(),
                     [](const auto& entry) { return entry.second->in_call; });
}

bool VolumeTable::CanAllResend() const {
  return std::all_of(volumes_.begin(), volumes_.end(), [](const auto& entry) {
    return !entry.second->fuse.device || entry.second->fuse.can_resend;
  });
}

bool VolumeTable::IsSlotTaken(uint32_t slot) const {
  return std::any_of(volumes_.begin(), volumes_.end(),
                     [slot](const auto& entry) { return entry.second->slot == slot; });
}

}  // namespace lunkeeper
