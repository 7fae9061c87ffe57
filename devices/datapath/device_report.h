#pragma once
// What clients learn of a volume: its device, its health, and why a login failed. Pure functions; the
// caller sees to it that the volume does not change meanwhile.

#include <string>

#include "absl/status/status.h"
#include "devices/datapath/control.pb.h"
#include "devices/datapath/shared_state.h"
#include "devices/datapath/volume_table.h"

namespace lunkeeper {

// `worker_trouble`: why workers die one after the other, if they do.
datapath::Device BuildDevice(const SupervisedVolume& volume, const VolumeSlot& slot,
                             const std::string& worker_trouble, bool statistics = false);
// Why a volume that is not healthy is not, for people.
std::string TroubleOf(const VolumeSlot& slot, const std::string& worker_trouble);
// What a failed login means to the caller of Attach (initiator.h has the contract).
absl::StatusCode CodeOf(LunFailure failure);

}  // namespace lunkeeper
