#pragma once
// The loop devices that an earlier supervisor at the same socket left in use when it died. Their I/O fails,
// but a mount or an open file keeps them, and a volume must not get a second device while its first one is
// open.
//
// Thread safety: none; the lock of SupervisedVolumes guards it. The kernel is asked each time: an orphan that
// has gone is forgotten.

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "devices/datapath/control.pb.h"
#include "devices/datapath/loop_device.h"
#include "devices/types.h"

namespace lunkeeper {

class OrphanedDevices {
 public:
  // `is_ours`, here and below: whether a loop number belongs to this supervisor, which may have inherited it
  // or been given an orphan's since. To be made before it makes a device: the others that bear its tag now
  // are orphans.
  OrphanedDevices(std::string tag_prefix, const std::function<bool(int number)>& is_ours)
      : tag_prefix_(std::move(tag_prefix)), orphans_(FindLoops(tag_prefix_, is_ours)) {}

  // Those still there of one volume, or of all (`volume` empty).
  std::vector<datapath::Device> FindOrphans(const std::string& volume,
                                            const std::function<bool(int number)>& is_ours);

  // What the tag of this supervisor's devices begins with (loop_device.h).
  const std::string& tag_prefix() const { return tag_prefix_; }

 private:
  void ForgetGone(const std::function<bool(int number)>& is_ours);

  const std::string tag_prefix_;
  std::vector<FoundLoop> orphans_;
};

// The orphans of a data path that is dead, of one volume or of all (`volume` empty).
std::vector<datapath::Device> FindOrphans(const std::string& socket_path, const std::string& volume);

// Waits a moment until `find` finds none: the kernel removes an orphan after its last close.
// FAILED_PRECONDITION: it is still open.
absl::Status AwaitNoOrphan(const VolumeId& volume, absl::Time deadline,
                           const std::function<std::vector<datapath::Device>()>& find);

}  // namespace lunkeeper
