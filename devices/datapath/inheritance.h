#pragma once
// What one supervisor leaves to the next one at the same socket: the shared memory, the lock, the listening
// socket, and the volumes with their descriptors.
//
// It travels as one descriptor, the parcel: a socket in whose buffer all messages wait. So a successor has
// everything or nothing, whenever its predecessor dies. Not thread-safe. Failure: RESOURCE_EXHAUSTED (the
// buffer), INVALID_ARGUMENT (what came is no inheritance), and as control_socket.h says.

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "devices/datapath/shared_state.h"
#include "devices/datapath/volume_table.h"

namespace lunkeeper {

// What the volumes are and how far they have come.
struct VolumesState {
  SharedMemory memory;
  VolumeTable::Volumes volumes;
  uint64_t next_tag = 1;  // of commands to workers: never used before in this memory
};

struct Inheritance {
  UniqueFd lock;  // beside the socket; held as long as anybody has this descriptor
  UniqueFd listener;
  VolumesState state;
};

// Copies the descriptors; `volumes` stay as they are. Waits for nobody.
absl::StatusOr<UniqueFd> PackParcel(const SharedMemory& memory, const VolumeTable::Volumes& volumes,
                                    uint64_t next_tag, int lock, int listener);
absl::StatusOr<Inheritance> UnpackParcel(UniqueFd parcel);

}  // namespace lunkeeper
