#pragma once
// What one supervisor leaves to the next one at the same socket: the shared memory, the lock, the listening
// socket, and the volumes with their descriptors.
//
// It travels as one descriptor, the parcel: a socket in whose buffer all messages wait. So a successor has
// everything or nothing, whenever its predecessor dies. Not thread-safe. Failure: RESOURCE_EXHAUSTED (the
// buffer), INVALID_ARGUMENT (what came is no inheritance), and as control_socket.h says.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "devices/datapath/control.pb.h"
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

// The volumes in a socket's buffer: a message about all of them, and one for each.
struct BufferedVolumes {
  datapath::InheritedState state;
  std::vector<UniqueFd> fds;  // of the first message
  VolumeTable::Volumes volumes;
};
// Makes the buffer large enough. Waits for nobody; a failure leaves a part of them there.
absl::Status WriteVolumes(int socket, datapath::InheritedState state, const std::vector<int>& fds,
                          const SharedMemory& memory, const std::vector<const SupervisedVolume*>& volumes);
// `flags`: MSG_PEEK leaves them there, for the next reader; the socket's peek offset (SO_PEEK_OFF) is 0.
absl::StatusOr<BufferedVolumes> ReadVolumes(int socket, int flags);

// Copies the descriptors; `volumes` stay as they are. Waits for nobody.
absl::StatusOr<UniqueFd> PackParcel(const SharedMemory& memory, const VolumeTable::Volumes& volumes,
                                    uint64_t next_tag, int lock, int listener);
absl::StatusOr<Inheritance> UnpackParcel(UniqueFd parcel);

}  // namespace lunkeeper
