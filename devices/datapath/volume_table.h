#pragma once
// The volumes of a supervisor, by id: what it holds of each (FUSE descriptors, loop device, secrets), which
// slot of the shared memory is its own, and which call of a client works on it. A passive table; it moves
// nothing and waits for nobody.
//
// Thread safety: none; the lock of SupervisedVolumes guards it. A call that works on a volume (BeginCall) is
// the only one to change it until EndCall, and may read it without the lock meanwhile.
//
//             AddVolume                a worker reads its requests
//    (absent) ------> kNotGiven -----------------------------------> kGiven
//                         |                                             |
//                         | the data path ends      the data path ends, or the worker dies
//                         v                         on a kernel that cannot resend, or workers
//                       kLost <-------------------- crash on it again and again (crash_history.h)
//
// Erase takes it out of any of them. `fail_requested` stands beside it: a client (a fence) wants all I/O to
// end, and each worker learns of it.

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "devices/datapath/control.pb.h"
#include "devices/datapath/fuse_mount.h"
#include "devices/datapath/loop_device.h"
#include "devices/datapath/shared_state.h"
#include "devices/types.h"

namespace lunkeeper {

struct SupervisedVolume {
  enum class Service {
    kNotGiven,  // no worker has had its FUSE descriptor yet
    kGiven,     // a worker has read its requests, so a successor has to resend them
    kLost,      // failed for good without its Lun's doing; no worker is given it again
  };

  VolumeId id;
  datapath::Attach options;
  uint32_t slot = 0;
  FuseMount fuse;
  LoopDevice loop;  // without a descriptor: an attach is under way, or an attach or detach got stuck halfway
  uint32_t attachment = 0;  // as it was inherited: the slot's, if the volume is still there
  bool in_call = true;
  Service service = Service::kNotGiven;
  bool fail_requested = false;
  bool set_aside = false;  // lost, since workers crashed on it
  bool has_child = false;  // a call has a child that may wait for its I/O
  bool cut_off = false;    // lost, since its supervisor was killed beside such a child; its cache with it
  std::string reason;      // for people: why a client failed it, else why it is lost
  std::string loss;        // of data: what the next detach says once more

  bool lost() const { return service == Service::kLost; }
};

class VolumeTable {
 public:
  using Volumes = std::map<VolumeId, std::unique_ptr<SupervisedVolume>>;

  // `volumes`: those of a predecessor.
  explicit VolumeTable(SharedState* memory, Volumes volumes = {})
      : memory_(memory), volumes_(std::move(volumes)) {}

  // A new volume with a cleared slot, in the caller's call. The id must be free.
  // RESOURCE_EXHAUSTED: all slots are taken.
  absl::StatusOr<SupervisedVolume*> AddVolume(const datapath::Attach& options);
  void Erase(const VolumeId& id) { volumes_.erase(id); }

  SupervisedVolume* Find(const VolumeId& id) const;
  bool IsInCall(const VolumeId& id) const;
  // Gives the volume to the caller alone; nullptr: there is none. Only while no call works on it.
  SupervisedVolume* BeginCall(const VolumeId& id);
  static void EndCall(SupervisedVolume& volume) { volume.in_call = false; }

  // Unless the volume has newer ones, or is not there. Workers see them in its slot.
  void SetLimits(const VolumeId& id, const VolumeLimits& limits);
  bool UsesLoop(int number) const;
  bool IsAnyInCall() const;
  // The kernel can hand the requests of all mounts that are there to another worker.
  bool CanAllResend() const;
  const Volumes& volumes() const { return volumes_; }
  VolumeSlot& SlotOf(const SupervisedVolume& volume) const { return memory_->slots[volume.slot]; }

 private:
  bool IsSlotTaken(uint32_t slot) const;

  SharedState* const memory_;
  Volumes volumes_;
  uint32_t next_slot_ = 0;
};

}  // namespace lunkeeper
